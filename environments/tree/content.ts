/**
 * All of a content, or null when it has more bytes than that: what a scan said of a size need not hold, and the place is
 * not trusted.
 */
export async function contentUpTo(content: AsyncIterable<Buffer>, maxBytes: number): Promise<Buffer | null> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of content) {
    length += chunk.length;
    if (length > maxBytes) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length);
}

/** A content that is at hand, as a sequence. */
export function onlyChunk(bytes: Buffer): AsyncIterable<Buffer> {
  return {
    async *[Symbol.asyncIterator]() {
      if (bytes.length > 0) yield bytes;
    },
  };
}
