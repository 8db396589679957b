import assert from "node:assert/strict";
import { test } from "node:test";
import { format, parse } from "../src/index.js";

test("parse reads several units", () => {
  assert.equal(parse("1h 30m"), 5_400_000);
  assert.equal(parse("1.5s"), 1_500);
});

test("parse reads milliseconds", () => {
  assert.equal(parse("250ms"), 250);
  assert.equal(parse("1s 5ms"), 1_005);
});

test("parse refuses what is no duration", () => {
  assert.throws(() => parse("soon"), TypeError);
  assert.throws(() => parse(""), TypeError);
});

test("format leaves empty units out", () => {
  assert.equal(format(5_400_000), "1h 30m");
  assert.equal(format(0), "0ms");
});

test("parse reads what format writes", () => {
  for (const milliseconds of [1, 999, 61_001, 90_061_007]) {
    assert.equal(parse(format(milliseconds)), milliseconds);
  }
});
