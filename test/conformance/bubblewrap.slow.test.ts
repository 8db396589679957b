/** The areas that take long, in sandboxes with bash and the host's network. */
import { areasWithout, WAY_AREAS } from "./areas.ts";
import { describeBubblewrap, PLAIN } from "./bubblewrap.ts";

describeBubblewrap({ ...PLAIN, areas: areasWithout(WAY_AREAS) });
