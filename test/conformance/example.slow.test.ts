/** Runs the example of docs/write-a-backend.md, which is a test file of its own. */
import "../../examples/nice-backend.test.ts";
