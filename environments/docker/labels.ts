/** The labels by which our containers are known, whatever made or renamed others beside them. */
import { randomBytes } from "node:crypto";
import { ownerLabel } from "../owner.ts";

export const LABELS = {
  owner: "moorage.owner",
  session: "moorage.session",
  environment: "moorage.environment",
  /** The container's own name. An image committed from it hands its labels on, and then the names differ. */
  container: "moorage.container",
  createdAt: "moorage.created-at",
  keep: "moorage.keep",
  role: "moorage.role",
} as const;

/** Role of the companion that is another container's way to the proxy. */
export const DOOR_ROLE = "door";

/** A token of one orchestrator, beside the owner: two in one process differ. */
export function newSessionToken(): string {
  return randomBytes(8).toString("hex");
}

/** What a container's labels and name say about whose it is. */
export interface ContainerIdentity {
  readonly environment: string;
  readonly session: string;
}

/** @param name the container's own */
export function ownLabels(name: string, identity: ContainerIdentity): Record<string, string> {
  return {
    [LABELS.owner]: ownerLabel(),
    [LABELS.session]: identity.session,
    [LABELS.environment]: identity.environment,
    [LABELS.container]: name,
    [LABELS.createdAt]: new Date().toISOString(),
  };
}
