/** An object with the key when there is a value, and without it when there is none. */
export function pickDefined<Key extends string, Value>(
  key: Key,
  value: Value | undefined,
): { readonly [Name in Key]?: Value } {
  // A computed key widens to string; the object has just this one key or none.
  return (value === undefined ? {} : { [key]: value }) as { readonly [Name in Key]?: Value };
}
