/** The default of policies that only allow, also in changes. */

import type { CreateEgress } from "sandboxd";
import { expect, test } from "vitest";
import { json, Service, VIEW } from "./service.js";

const CASES: [CreateEgress, CreateEgress["default"]][] = [
  [{ allow: ["packages.example"] }, "deny"],
  [{ allow: ["packages.example"], default: "allow" }, "allow"],
  [{ allow: ["packages.example"], denyNetworks: ["192.0.2.0/24"] }, "deny"],
  [{ allowNetworks: ["192.0.2.0/24"] }, "deny"],
  // The exception of a denied network.
  [{ allowNetworks: ["192.0.2.7"], denyNetworks: ["192.0.2.0/24"] }, undefined],
  [{ denyNetworks: ["192.0.2.0/24"] }, undefined],
  [{ allow: [] }, "deny"],
  [{ allowNetworks: [] }, undefined],
  [{}, undefined],
];

test.each(CASES)("the policy %j has the default %s", async (egress, expected) => {
  await using service = await Service.start([json(201, VIEW)]);
  await service.client().sandboxes.create("i", { egress });
  const body = JSON.parse(service.received[0]?.body ?? "") as { network: { egress: CreateEgress } };
  expect(body.network.egress).toEqual(expected === undefined ? egress : { ...egress, default: expected });
});

test("a change of the list of what is allowed denies the rest", async () => {
  await using service = await Service.start(Array.from({ length: 4 }, () => json(200, VIEW)));
  const { network } = service.client().sandboxes.connect(VIEW.id);
  await network.update({ allow: ["a.example"] });
  await network.update({ default: "allow", allow: ["a.example"] });
  await network.update({ allow: [] });
  await network.update({ denyNetworks: ["192.0.2.0/24"] });
  expect(service.received.map(({ body }) => (JSON.parse(body) as { egress: CreateEgress }).egress)).toEqual([
    { default: "deny", allow: ["a.example"] },
    { default: "allow", allow: ["a.example"] },
    { default: "deny", allow: [] },
    { denyNetworks: ["192.0.2.0/24"] },
  ]);
});
