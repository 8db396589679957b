import { describeFiles } from "./file-cases.ts";

describeFiles("bash");
