/** The default of policies that only allow, and changes of policies without an effect. */

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
  [{ allow: [], allowNetworks: [] }, undefined],
  [{}, undefined],
];

test.each(CASES)("the policy %j has the default %s", async (egress, expected) => {
  await using service = await Service.start([json(201, VIEW)]);
  await service.client().sandboxes.create("i", { egress });
  const body = JSON.parse(service.received[0]?.body ?? "") as { network: { egress: CreateEgress } };
  expect(body.network.egress).toEqual(expected === undefined ? egress : { ...egress, default: expected });
});

test("a change of the list without an effect is named", async () => {
  const view = (fallback: string): object => ({ ...VIEW, network: { egress: { default: fallback, allow: ["a.example"] } } });
  await using service = await Service.start([json(200, view("deny")), json(200, view("allow")), json(200, view("allow"))]);
  const messages: string[] = [];
  const { network } = service.client({ log: (message) => messages.push(message) }).sandboxes.connect(VIEW.id);
  await network.update({ default: "deny", allow: ["a.example"] });
  await network.update({ allow: [] });
  expect(messages).toEqual([]);
  await network.update({ allow: ["a.example"] });
  expect(messages).toEqual([expect.stringContaining("the list allow has no effect until default is 'deny'")]);
});
