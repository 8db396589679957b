/** Reads what a run of Vitest came to from its JSON report. */

export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

export const NO_COUNTS: Counts = { passed: 0, failed: 0, skipped: 0 };

export function addCounts(a: Counts, b: Counts): Counts {
  return { passed: a.passed + b.passed, failed: a.failed + b.failed, skipped: a.skipped + b.skipped };
}

/**
 * Counts the tests of a report, so that nothing that went wrong counts as nothing.
 *
 * A file that could not be loaded has no tests and counts as one failure; so does a missing or broken report, and a
 * run that failed although every test passed (an unhandled error, a global set-up).
 *
 * @param report text of the report; null when there is none
 * @param endedWell whether the runner's exit code was 0
 */
export function countsOf(report: string | null, endedWell: boolean): Counts {
  const parsed = report === null ? null : parse(report);
  if (parsed === null) return { ...NO_COUNTS, failed: 1 };
  const unloaded = parsed.testResults.filter(
    ({ status, assertionResults }) => status === "failed" && assertionResults.length === 0,
  ).length;
  const failed = parsed.numFailedTests + unloaded;
  return {
    passed: parsed.numPassedTests,
    failed: failed === 0 && !endedWell ? 1 : failed,
    skipped: parsed.numPendingTests + parsed.numTodoTests,
  };
}

interface Report {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly numTodoTests: number;
  readonly testResults: readonly { readonly status: string; readonly assertionResults: readonly unknown[] }[];
}

function parse(text: string): Report | null {
  try {
    // Vitest writes Jest's format; a report that is not one has no list of results.
    const report = JSON.parse(text) as Partial<Report>;
    const { testResults, numPassedTests, numFailedTests, numPendingTests = 0, numTodoTests = 0 } = report;
    if (!Array.isArray(testResults) || numPassedTests === undefined || numFailedTests === undefined)
      return null;
    return { testResults, numPassedTests, numFailedTests, numPendingTests, numTodoTests };
  } catch {
    // A report that was cut off: the runner died while it wrote.
    return null;
  }
}
