/** Shows slow steps of environments on stderr: a bar on a terminal, a line per step and quarter elsewhere. */
import type { SingleBar } from "cli-progress";

export interface ProgressStep {
  readonly environment: string;
  readonly message: string;
  /** Between 0 and 1, when it is known. */
  readonly fraction?: number;
}

/** Dispose it, and the terminal's line is free again. */
export interface ProgressView extends Disposable {
  show(step: ProgressStep): void;
}

export function createProgressView(stream: NodeJS.WriteStream): ProgressView {
  return stream.isTTY ? createBar(stream) : createLines(stream);
}

function createLines(stream: NodeJS.WriteStream): ProgressView {
  const shown = new Map<string, string>();
  return {
    show({ environment, message, fraction }) {
      const quarter = fraction === undefined ? "" : ` ${Math.floor(fraction * 4) * 25} %`;
      const line = `moor: ${environment}: ${message}${quarter}`;
      if (shown.get(environment) === line) return;
      shown.set(environment, line);
      stream.write(`${line}\n`);
    },
    [Symbol.dispose]() {},
  };
}

function createBar(stream: NodeJS.WriteStream): ProgressView {
  let bar: SingleBar | undefined;
  let latest: ProgressStep | undefined;
  let ended = false;
  // The library is loaded at the first step: most commands have none.
  const loading = import("cli-progress").then(({ default: progress }) => {
    if (ended) return;
    bar = new progress.SingleBar(
      {
        stream,
        format: "{environment}: {message} {bar} {percentage} %",
        clearOnComplete: true,
        hideCursor: true,
        stopOnComplete: false,
        etaBuffer: 1,
      },
      progress.Presets.shades_classic,
    );
    if (latest) draw(latest);
  });
  const draw = ({ environment, message, fraction = 0 }: ProgressStep): void => {
    const payload = { environment, message };
    const value = Math.round(fraction * 100);
    if (bar?.isActive) bar.update(value, payload);
    else bar?.start(100, value, payload);
    if (fraction >= 1) bar?.stop();
  };
  return {
    show(step) {
      latest = step;
      if (bar) draw(step);
      else void loading;
    },
    [Symbol.dispose]() {
      ended = true;
      bar?.stop();
    },
  };
}
