/** The areas that take long, in sandboxes with bash and the host's network. */
import { LONG_AREAS } from "./areas.ts";
import { describeBubblewrap, PLAIN } from "./bubblewrap.ts";

describeBubblewrap({ ...PLAIN, areas: LONG_AREAS });
