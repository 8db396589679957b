/** Nobody presses a key in a pager or types into an editor that a program opens by itself. */

/**
 * What every command starts with, whatever the machine, an image or a profile says: a pager passes its text on, an
 * editor leaves its text as it is. The environment's `env`, a session and a single command may set them otherwise.
 *
 * git's own are there because it asks them before its configuration, and the others only after it.
 */
export const UNATTENDED_VARIABLES: Readonly<Record<string, string>> = {
  PAGER: "cat",
  GIT_PAGER: "cat",
  MANPAGER: "cat",
  SYSTEMD_PAGER: "cat",
  EDITOR: "true",
  VISUAL: "true",
  GIT_EDITOR: "true",
  GIT_SEQUENCE_EDITOR: "true",
};
