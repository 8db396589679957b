import { describeLocal } from "./local.ts";

describeLocal("sh");
