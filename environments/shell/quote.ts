/** Quotes `text` as one word for every shell of the Bourne family. @throws {RangeError} on NUL, which no word can hold */
export function quote(text: string): string {
  if (text.includes("\0")) throw new RangeError("A shell word cannot hold a NUL byte");
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Quotes an argv array as one command line. */
export function quoteAll(words: readonly string[]): string {
  return words.map(quote).join(" ");
}
