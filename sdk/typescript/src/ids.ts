/** Random identifiers for runs and idempotency keys. */

const ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz";
const OPAQUE = 20;

/** A random id with a prefix such as `key_`. */
export function randomId(prefix: string): string {
  let id = prefix;
  for (const byte of crypto.getRandomValues(new Uint8Array(OPAQUE))) id += ALPHABET.charAt(byte % ALPHABET.length);
  return id;
}
