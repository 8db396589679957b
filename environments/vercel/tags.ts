/** Tags by which an owner's sandboxes are found again; the API takes five. */
export const VERCEL_TAGS = { owner: "moorage-owner", id: "moorage-id", keep: "moorage-keep" } as const;
