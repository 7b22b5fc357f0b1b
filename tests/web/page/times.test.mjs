/** Times and durations as users type and read them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { age, clockTime, dateTime, duration, minute, parseTime, size, zone, zonedTime } from "../../../twisted_exec/web/page/times.js";

const NOW = new Date(2026, 10, 20, 12, 0, 0).getTime();
const local = (...parts) => new Date(...parts).toISOString();

test("a time of today has no date", () => {
  const time = new Date(2026, 10, 20, 8, 38, 20).getTime();
  assert.equal(minute(time, NOW), "08:38");
  assert.equal(minute(time, NOW + 86_400_000), "2026-11-20 08:38");
});

test("users write times in several ways", () => {
  const cases = [
    ["2026-11-20T08:38:20Z", "2026-11-20T08:38:20.000Z"],
    ["2026-11-20T08:38:20.104595125+01:00", "2026-11-20T07:38:20.104Z"],
    ["2026-11-20 08:38", local(2026, 10, 20, 8, 38)],
    [" 2026-11-20T08:38:01 ", local(2026, 10, 20, 8, 38, 1)],
    ["2026-11-19", local(2026, 10, 19, 0, 0)],
    ["08:38", local(2026, 10, 20, 8, 38)],
    ["13:00", local(2026, 10, 19, 13, 0)],
    ["12:00:01", local(2026, 10, 19, 12, 0, 1)],
    ["1h30m", local(2026, 10, 20, 10, 30)],
    ["2d", new Date(NOW - 2 * 86_400_000).toISOString()],
    ["1h30m ago", local(2026, 10, 20, 10, 30)],
    ["45s", local(2026, 10, 20, 11, 59, 15)],
  ];
  for (const [typed, time] of cases) assert.equal(parseTime(typed, NOW), time, typed);
});

test("a text that is no time is refused with examples", () => {
  for (const typed of ["", "ago", "tomorrow", "25:00", "12:60", "2026-13-40 00:00", "2026-13-40", "1h 30m", "-5m", "9".repeat(400) + "d"]) {
    assert.throws(() => parseTime(typed, NOW), /is not a time: write 2026-11-20 08:38/, typed);
  }
});

test("a time names its zone", () => {
  assert.deepEqual([0, 60, 330, -210, -600].map(zone), ["UTC", "UTC+1", "UTC+5:30", "UTC-3:30", "UTC-10"]);
  assert.match(zonedTime(NOW), /^2026-11-20 12:00:00 UTC/);
  assert.equal(zonedTime("not a time"), "");
});

test("times and lengths are short", () => {
  assert.equal(clockTime("2026-11-20T08:38:20.104595125Z").slice(-6), "20.104");
  assert.equal(clockTime(""), "");
  assert.equal(dateTime(new Date(2026, 0, 2, 3, 4, 5).getTime()), "2026-01-02 03:04:05");
  assert.equal(dateTime("not a time"), "");
  const cases = [[0, "0s"], [119, "119s"], [125, "2m5s"], [600, "10m"], [3 * 3600, "3h"], [7.5 * 3600, "7h30m"], [30 * 3600, "30h"], [50 * 3600, "2d2h"], [-5, "0s"]];
  for (const [seconds, text] of cases) assert.equal(duration(seconds * 1000), text);
  assert.equal(age(undefined, NOW), "");
  assert.equal(age("", NOW), "");
  assert.equal(age(new Date(NOW - 65_000).toISOString(), NOW), "65s");
});

test("sizes are in binary units", () => {
  const cases = [[0, "0 B"], [1023, "1023 B"], [1536, "1.5 KiB"], [20 << 20, "20 MiB"], [NaN, ""]];
  for (const [bytes, text] of cases) assert.equal(size(bytes), text);
});
