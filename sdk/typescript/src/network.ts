/** The network policy of a sandbox. */

import { defined, idempotencyHeaders } from "./context.js";
import type { CallOptions, SandboxContext } from "./context.js";
import { randomId } from "./ids.js";
import type { CreateEgress, CreateIngress, CreateNetwork, EgressDefault, NetworkView, SandboxView } from "./models.js";
import { jsonPayload } from "./payload.js";

/** A change of the policy. Absent parts do not change. */
export interface NetworkChange extends CallOptions {
  /** Which destinations are allowed: all public ones, or only those in `allow`. */
  default?: EgressDefault;
  /** The allowed domains, such as `example.com` and `*.example.com`. */
  allow?: readonly string[];
  /** IPv4 addresses and networks that are allowed besides, or although `denyNetworks` has them. */
  allowNetworks?: readonly string[];
  /** IPv4 addresses and networks that are denied although the default allows them. */
  denyNetworks?: readonly string[];
  /** The ports that may be exposed. */
  allowPorts?: readonly number[];
  /** A request with the same key within 24 hours returns the same response. */
  idempotencyKey?: string;
}

/** The network of a sandbox. */
export class Network {
  readonly #context: SandboxContext;

  constructor(context: SandboxContext) {
    this.#context = context;
  }

  /** Returns the policy and the traffic. */
  get(options: CallOptions = {}): Promise<NetworkView> {
    const path = this.#context.path("/network");
    return this.#context.json({ method: "GET", path, safety: "repeatable", signal: options.signal });
  }

  /** Changes the policy, and returns the sandbox. */
  update(change: NetworkChange): Promise<SandboxView> {
    return this.#context.json({
      method: "PATCH",
      path: this.#context.path("/network"),
      safety: "repeatable",
      payload: jsonPayload(networkBody(change)),
      headers: idempotencyHeaders(change.idempotencyKey ?? randomId("key_")),
      signal: change.signal,
    });
  }
}

function networkBody(change: NetworkChange): CreateNetwork {
  const { default: fallback, allow, allowNetworks, denyNetworks, allowPorts } = change;
  const egress = defined<CreateEgress>({ default: fallback, allow, allowNetworks, denyNetworks });
  return defined<CreateNetwork>({
    egress: Object.keys(egress).length > 0 ? egress : undefined,
    ingress: allowPorts === undefined ? undefined : ({ allowPorts } satisfies CreateIngress),
  });
}
