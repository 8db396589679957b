import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { coerce } from "../../src/coerce.ts";
import { toJsonSchema } from "../../src/json-schema.ts";

const schemaOf = (schema: z.ZodType) => toJsonSchema(schema, "input");

describe("coerce()", () => {
  it.each([
    ["42", z.int(), 42],
    [" 42 ", z.int(), 42],
    ["-7", z.int(), -7],
    ["42.0", z.int(), 42],
    ["1e3", z.int(), 1000],
    ["0.5", z.number(), 0.5],
    ["true", z.boolean(), true],
    ["False", z.boolean(), false],
    ['["a","b"]', z.array(z.string()), ["a", "b"]],
    ["[1, 2]", z.array(z.int()), [1, 2]],
    ['["1"]', z.array(z.int()), [1]],
    ["a", z.array(z.string()), ["a"]],
    [5, z.array(z.int()), [5]],
    ["5", z.array(z.int()), [5]],
    ['{"a":1}', z.object({ a: z.int() }), { a: 1 }],
    ['{"a":"1"}', z.object({ a: z.int() }), { a: 1 }],
    ['{"a":1}', z.array(z.object({ a: z.int() })), [{ a: 1 }]],
    ["null", z.int().nullable(), null],
    ["42", z.union([z.int(), z.string()]), "42"],
    ["42", z.union([z.int(), z.boolean()]), 42],
    ["true", z.union([z.int(), z.boolean()]), true],
    ["7", z.enum({ seven: 7 }), 7],
    [{ a: null }, z.object({ a: z.int().optional() }), {}],
    [{ a: null }, z.object({ a: z.int().nullish() }), { a: null }],
    [{ a: "1", b: "x" }, z.object({ a: z.int(), b: z.int() }), { a: 1, b: "x" }],
    [["1", "x"], z.array(z.int()), [1, "x"]],
    [{ x: "1" }, z.record(z.string(), z.int()), { x: 1 }],
    [["1", "true"], z.tuple([z.int(), z.boolean()]), [1, true]],
  ])("makes %j fit %#", (value, schema, result) => {
    expect(coerce(value, schemaOf(schema))).toEqual(result);
  });

  it.each([
    ["4.2", z.int()],
    ["inf", z.number()],
    ["Infinity", z.number()],
    ["nan", z.number()],
    ["NaN", z.int()],
    ["1e999", z.number()],
    ["0x10", z.int()],
    ["1_000", z.int()],
    ["042", z.int()],
    ["9007199254740993", z.int()],
    ["0.12345678901234567890", z.number()],
    ["", z.int()],
    ["yes", z.boolean()],
    ["1", z.boolean()],
    [1, z.boolean()],
    [42, z.string()],
    ["null", z.int()],
    ["null", z.string().nullable()],
    ["[1, 2", z.array(z.int())],
    ["[1]", z.object({ a: z.int() })],
    ["text", z.object({ a: z.int() })],
    ["b", z.array(z.int())],
    ["3", z.enum(["1", "2"])],
    [null, z.int()],
    [{}, z.array(z.string())],
  ])("leaves %j for %#", (value, schema) => {
    expect(coerce(value, schemaOf(schema))).toEqual(value);
  });

  it("never changes a value that fits", () => {
    const schema = z.object({
      a: z.union([z.string(), z.int(), z.null()]),
      b: z.array(z.union([z.string(), z.array(z.string())])),
      c: z.record(z.string(), z.json()),
    });
    const fitting = fc.record({
      a: fc.oneof(fc.string(), fc.integer(), fc.constant(null)),
      b: fc.array(fc.oneof(fc.string(), fc.array(fc.string()))),
      c: fc.dictionary(fc.string(), fc.jsonValue()),
    });
    const written = schemaOf(schema);
    fc.assert(
      fc.property(fitting, (value) => {
        expect(coerce(value, written)).toBe(value);
      }),
    );
  });

  it("keeps __proto__ a key like any other", () => {
    const value = JSON.parse('{"n": "1", "__proto__": {"polluted": true}}');
    const result = coerce(value, { type: "object", properties: { n: { type: "integer" } } });
    expect(JSON.stringify(result)).toBe('{"n":1,"__proto__":{"polluted":true}}');
    expect(Object.getPrototypeOf(result)).toBe(Object.prototype);
  });

  it("follows schemas that refer to themselves, and ends on hostile depth", () => {
    type Tree = { value: number; children: Tree[] };
    const tree: z.ZodType<Tree> = z.object({ value: z.int(), children: z.array(z.lazy(() => tree)) });
    const schema = schemaOf(tree);
    expect(coerce({ value: "1", children: [{ value: "2", children: [] }] }, schema)).toEqual({
      value: 1,
      children: [{ value: 2, children: [] }],
    });
    let deep: unknown = { value: "x", children: [] };
    for (let level = 0; level < 5_000; level += 1) deep = { value: "1", children: [deep] };
    const startedAt = performance.now();
    coerce(deep, schema);
    coerce(deep, { anyOf: [{ $ref: "#/anyOf/1" }, { $ref: "#/anyOf/0" }, schema] });
    expect(performance.now() - startedAt).toBeLessThan(2_000);
  });
});
