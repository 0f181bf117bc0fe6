/** The list has the live sandboxes; other states are asked for. Images are found by any form of their names. */

import { expect, test } from "vitest";
import { json, Service, VIEW } from "./service.js";

interface Item {
  id: string;
  state: string;
}

/** Lists sandboxes by state, like the service; `onRequest` may change them before a response. */
function listing(items: Item[], onRequest: (state: string | null) => void = () => undefined): Parameters<typeof Service.start>[0] {
  return (request, response) => {
    const query = new URL(request.path, "http://x").searchParams;
    const [state, limit, offset] = [query.get("state"), Number(query.get("limit")), Number(query.get("offset"))];
    onRequest(state);
    const all = items.filter((item) => state === null || item.state === state);
    const data = all.slice(offset, offset + limit);
    const pagination = { total: all.length, limit, offset, hasMore: offset + data.length < all.length };
    return json(200, { data, pagination })(request, response);
  };
}

function itemsOf(states: string): Item[] {
  const names: Record<string, string> = { r: "running", p: "paused", t: "terminated" };
  return Array.from(states, (letter, index) => ({ ...VIEW, id: `sb_${index}`, state: names[letter] ?? "" }));
}

const idsOf = (items: readonly { readonly id: string }[]): string => items.map(({ id }) => id.slice(3)).join(" ");

test("the list has the running and then the paused sandboxes", async () => {
  await using service = await Service.start(listing(itemsOf("rtprtpr")));
  const { sandboxes } = service.client();
  const list = sandboxes.list({ image: "i", metadata: { a: "1" } });
  expect(idsOf(await list.toArray())).toBe("0 3 6 2 5");
  expect(await list.total()).toBe(5);
  const queries = service.received.map(({ path }) => path.split("?")[1]);
  expect(queries[0]).toBe("state=running&image=i&limit=100&offset=0&metadata.a=1");
});

test.each([
  ["running", "0 3"],
  ["paused", "2"],
  ["terminated", "1 4"],
  ["all", "0 1 2 3 4"],
] as const)("the state %s is listed on request", async (state, ids) => {
  await using service = await Service.start(listing(itemsOf("rtprt")));
  expect(idsOf(await service.client().sandboxes.list({ state }).toArray())).toBe(ids);
  expect(service.received).toHaveLength(1);
});

test("pages of the live sandboxes are pages of one list", async () => {
  await using service = await Service.start(listing(itemsOf("rtprtprpp")));
  const list = service.client().sandboxes.list({ pageSize: 2 });
  const pages = [];
  for (let offset = 0; offset <= 8; offset += 2) pages.push(await list.page(offset));
  expect(pages.map(({ data }) => idsOf(data))).toEqual(["0 3", "6 2", "5 7", "8", ""]);
  expect(pages.map(({ pagination }) => pagination.hasMore)).toEqual([true, true, true, false, false]);
  expect(pages[1]?.pagination).toEqual({ total: 7, limit: 2, offset: 2, hasMore: true });
  expect(idsOf(await list.toArray())).toBe("0 3 6 2 5 7 8");
});

test.each([
  ["paused", "r", ["running", "paused"]],
  ["resumed", "p", ["paused", "running"]],
])("a sandbox that is %s while the list is read is in it, once", async (_, letter, [from = "", to = ""]) => {
  const items = itemsOf(letter);
  let requests = 0;
  // The change happens between the lists of the two states.
  const change = (): void => {
    const [item] = items;
    if (requests++ === 1 && item?.state === from) item.state = to;
  };
  await using service = await Service.start(listing(items, change));
  expect(idsOf(await service.client().sandboxes.list().toArray())).toBe("0");
});

test("an image is found by another form of its name", async () => {
  const image = { name: "docker.io/library/alpine:latest", status: "ready" };
  const pagination = { total: 1, limit: 20, offset: 0, hasMore: false };
  await using service = await Service.start([json(200, { data: [image], pagination }), json(200, { data: [], pagination })]);
  const { images } = service.client();
  expect((await images.get("alpine"))?.name).toBe(image.name);
  expect(await images.get("other")).toBeUndefined();
});
