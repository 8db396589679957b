import { describeLocal } from "./local.ts";

describeLocal("bash");
