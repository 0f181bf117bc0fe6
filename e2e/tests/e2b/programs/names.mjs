// Resolves names below .localhost to 127.0.0.1, as browsers do: some C libraries do not. Imported for this effect.
import dns from 'node:dns'

const lookup = dns.lookup

dns.lookup = (host, ...rest) => lookup(host?.endsWith('.localhost') ? '127.0.0.1' : host, ...rest)
