import { describe, expect, it } from "vitest";
import { checkKnown, defaultName, parseEnvironmentWords } from "../../src/environment-names.ts";
import { parseSpec } from "../../src/spec.ts";

const DIGEST = `sha256:${"0123456789abcdef".repeat(4)}`;

describe("parseSpec()", () => {
  it.each([
    ["local", { backend: "local", options: {} }],
    ["local?isolation=bubblewrap", { backend: "local", options: { isolation: "bubblewrap" } }],
    ["local?keep", { backend: "local", options: { keep: true } }],
    ["docker:alpine", { backend: "docker", image: "alpine", options: {} }],
    ["docker:node:24", { backend: "docker", image: "node:24", options: {} }],
    [
      "docker:host.example:5000/team/app:1.2-rc_3",
      { backend: "docker", image: "host.example:5000/team/app:1.2-rc_3", options: {} },
    ],
    [`docker:app@${DIGEST}`, { backend: "docker", image: `app@${DIGEST}`, options: {} }],
    [
      `docker:r/app:1@${DIGEST}?memory=1g`,
      { backend: "docker", image: `r/app:1@${DIGEST}`, options: { memory: 1024 ** 3 } },
    ],
    [
      "docker:node:24?memory=512m&cpus=1.5&pool=2&user=1000:1000&egress=none&pids=64&read_only=false&pull=never",
      {
        backend: "docker",
        image: "node:24",
        options: {
          memory: 512 * 1024 ** 2,
          cpus: 1.5,
          pool: 2,
          user: "1000:1000",
          egress: "none",
          pids: 64,
          read_only: false,
          pull: "never",
        },
      },
    ],
    ["docker:a?egress=open", { backend: "docker", image: "a", options: { egress: "open" } }],
    [
      "docker:a?egress=api.github.com,*.githubusercontent.com,host:8080,10.0.0.0/8",
      {
        backend: "docker",
        image: "a",
        options: {
          egress: { allow: ["api.github.com", "*.githubusercontent.com", "host:8080", "10.0.0.0/8"] },
        },
      },
    ],
    [
      "docker:a?workspace=/srv/with%20space%26more",
      { backend: "docker", image: "a", options: { workspace: "/srv/with space&more" } },
    ],
    ["docker+attach:my_box.1", { backend: "docker+attach", container: "my_box.1", options: {} }],
    ["ssh://box", { backend: "ssh", user: null, host: "box", port: null, options: {} }],
    [
      "ssh://me@box.example:2222/srv/app",
      { backend: "ssh", user: "me", host: "box.example", port: 2222, options: { workspace: "/srv/app" } },
    ],
    ["ssh://me@[::1]:22/", { backend: "ssh", user: "me", host: "::1", port: 22, options: {} }],
    [
      "ssh://box/a%3Fb?known_hosts=accept-new",
      {
        backend: "ssh",
        user: null,
        host: "box",
        port: null,
        options: { known_hosts: "accept-new", workspace: "/a?b" },
      },
    ],
    ["vercel", { backend: "vercel", name: null, options: {} }],
    [
      "vercel:mine?base_url=http://127.0.0.1:3000",
      { backend: "vercel", name: "mine", options: { base_url: "http://127.0.0.1:3000" } },
    ],
  ])("reads %s", (text, spec) => {
    expect(parseSpec(text)).toEqual(spec);
  });

  it.each([
    ["", "it is empty"],
    [
      "dokcer:alpine",
      'unknown backend "dokcer"; did you mean "docker"? (there are: local, docker, docker+attach, ssh, vercel)',
    ],
    ["docker_attach:x", 'unknown backend "docker_attach"; did you mean "docker+attach"?'],
    ["me@box", 'unknown backend "me@box"; did you mean "ssh://me@box"?'],
    ["me@box:/srv", 'did you mean "ssh://me@box/srv"?'],
    ["me@box:2222/srv", 'did you mean "ssh://me@box:2222/srv"?'],
    ["node:24?memory=2g", 'did you mean "docker:node:24?memory=2g"?'],
    ["ghcr.io/a/b@sha256:0f", 'did you mean "docker:ghcr.io/a/b@sha256:0f"?'],
    ["https://box", 'unknown backend "https" (there are'],
    ["Local", 'unknown backend "Local"; did you mean "local"?'],
    ["banana", 'unknown backend "banana" (there are'],
    ["constructor:x", 'unknown backend "constructor"; did you mean "docker:constructor:x"? (there are'],
    ["local:x", "local takes no target"],
    ["docker", "it names no image"],
    ["docker:", "it names no image"],
    ["docker:-v", '"-v" is no image name'],
    ["docker:--privileged", '"--privileged" is no image name'],
    ["docker:a b", "it holds a space or a control character"],
    ["docker:a\n", "it holds a space or a control character"],
    ["docker+attach", "it names no container"],
    ["docker+attach:-x", "is no container name"],
    ["docker+attach:a/b", "is no container name"],
    ["docker:a?memroy=1g", 'unknown option "memroy"; did you mean "memory"? (docker takes: workspace,'],
    ["local?memory=1g", 'unknown option "memory" (local takes:'],
    ["local?__proto__=1", 'unknown option "__proto__"'],
    ["local?", 'unknown option ""'],
    ["docker:a?memory=lots", 'option "memory": expected a size such as 512m or 2g, received "lots"'],
    ["docker:a?memory=-1", 'the value of "memory" begins with "-"'],
    ["docker:a?user=--root", 'the value of "user" begins with "-"'],
    ["docker:a?user=%2d-root", 'the value of "user" begins with "-"'],
    ["docker:a?cpus=none", 'option "cpus": expected a number of processors'],
    ["docker:a?cpus=0", 'option "cpus"'],
    ["docker:a?pids=1.5", 'option "pids": expected a whole number'],
    ["docker:a?pool=2&pool=3", 'option "pool" stands there twice'],
    ["docker:a?keep=yes", 'option "keep": expected true or false, received "yes"'],
    ["docker:a?egress=nnoe", 'did you mean "none"?'],
    [
      "docker:a?egress=",
      'option "egress": expected open, none, or hosts separated by commas; none allows nothing',
    ],
    ["docker:a?egress=none,registry.npmjs.org", '"none" stands alone'],
    ["docker:a?egress=registry.npmjs.org,open", '"open" stands alone'],
    ["docker:a?egress=none,open", '"none" stands alone'],
    ["docker:a?egress=a.example,-x", '"-x" is no host'],
    ["docker:a?pull=mising", 'did you mean "missing"?'],
    ["docker:a?workspace=src", "expected an absolute path"],
    ["docker:a?workspace=%zz", "is not percent-encoded correctly"],
    ["docker:a?workspace=/a%0Ab", "holds a control character"],
    ["docker:a?workspace=/a%00b", "holds a control character"],
    ["ssh:box", "it names no host"],
    ["ssh://", "it names no host"],
    ["ssh://-oProxyCommand=x", "is no host"],
    ["ssh://-l@box", '"-l" is no user name'],
    ["ssh://me:secret@box", "a password does not belong into a specification"],
    ["ssh://box:0", '"0" is no port'],
    ["ssh://box:99999", "is no port"],
    ["ssh://box:", "is no port"],
    ["ssh://box/srv?workspace=/other", "it names two workspaces"],
    ["vercel:", "it names no name"],
  ])("refuses %j", (text, reason) => {
    expect(() => parseSpec(text)).toThrow(
      expect.objectContaining({ code: "INVALID_SPEC", message: expect.stringContaining(reason) }),
    );
  });
});

describe("parseEnvironmentWords()", () => {
  it("names environments as told, or by their backend", () => {
    expect(
      parseEnvironmentWords([
        "box=docker:node:24?memory=1g",
        "local?isolation=bubblewrap",
        "docker+attach:x",
      ]),
    ).toEqual({
      box: "docker:node:24?memory=1g",
      local: "local?isolation=bubblewrap",
      "docker-attach": "docker+attach:x",
    });
  });

  it.each([[["local", "local"]], [["a b=local"]], [["=local"]], [["-x=local"]]])("refuses %j", (words) => {
    expect(() => parseEnvironmentWords(words)).toThrow(expect.objectContaining({ code: "INVALID_SPEC" }));
  });

  it("takes a configured name for its own name", () => {
    expect(defaultName("work-box")).toBe("work-box");
    expect(() => checkKnown("work-box", ["work-box"])).not.toThrow();
    expect(() => checkKnown("work-bx", ["work-box"])).toThrow(
      /no environment "work-bx"; did you mean "work-box"\?/,
    );
    expect(() => checkKnown("lcoal", [])).toThrow(/did you mean "local"\?/);
    expect(() => checkKnown("library/node", ["web"])).toThrow(/did you mean "docker:library\/node"\?/);
  });
});
