/** The network policy of a sandbox. */

import { defined, idempotencyHeaders, signalOf } from "./context.js";
import type { CallOptions, SandboxContext } from "./context.js";
import { Described } from "./described.js";
import { randomId } from "./ids.js";
import type { CreateEgress, CreateIngress, CreateNetwork, EgressDefault, NetworkView, SandboxView } from "./models.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import { jsonPayload } from "./payload.js";

/** A change of the policy. Absent parts do not change. */
export interface NetworkChange extends CallOptions {
  /**
   * Which destinations are allowed: all public ones, or only those in `allow`. Default: `deny` with a list `allow`, as in a create;
   * otherwise it does not change.
   */
  default?: EgressDefault;
  /** The allowed domains, such as `example.com` and `*.example.com`. With the default `allow` they have no effect. */
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

const CHANGE: OptionNames<NetworkChange> = {
  ...{ default: true, allow: true, allowNetworks: true, denyNetworks: true, allowPorts: true, idempotencyKey: true, signal: true },
};

/** The network of a sandbox. */
export class Network extends Described {
  readonly #context: SandboxContext;

  /** For `Sandbox.network`. */
  constructor(context: SandboxContext) {
    super();
    this.#context = context;
  }

  /** Returns the policy and the traffic. */
  async get(options: CallOptions = {}): Promise<NetworkView> {
    const path = this.#context.path("/network");
    return this.#context.json({ method: "GET", path, safety: "repeatable", signal: signalOf(options) });
  }

  /**
   * Changes the policy, and returns the sandbox. A list replaces what was there, unlike `sbx network allow`, which adds to it: to add
   * a name, pass the names of `get` with it.
   */
  async update(change: NetworkChange): Promise<SandboxView> {
    checkNames(change, CHANGE);
    return this.#context.json({
      method: "PATCH",
      path: this.#context.path("/network"),
      safety: "repeatable",
      payload: jsonPayload(networkBody(change)),
      headers: idempotencyHeaders(change.idempotencyKey ?? randomId("key_")),
      signal: change.signal,
    });
  }

  protected describe(): object {
    return { sandbox: this.#context.id };
  }
}

function networkBody(change: NetworkChange): CreateNetwork {
  const { allow, allowNetworks, denyNetworks, allowPorts } = change;
  // A list of what is allowed denies the rest, as in a create.
  const fallback = change.default ?? (allow === undefined ? undefined : "deny");
  const egress = defined<CreateEgress>({ default: fallback, allow, allowNetworks, denyNetworks });
  return defined<CreateNetwork>({
    egress: Object.keys(egress).length > 0 ? egress : undefined,
    ingress: allowPorts === undefined ? undefined : ({ allowPorts } satisfies CreateIngress),
  });
}
