/** The hub of all tabs, as a SharedWorker; of one tab, where that loads it as a script of its own. */

import { Hub } from "./hub";
import type { HubScope, ToHub } from "./messages";

const HIDDEN_MS = 5 * 60_000;
const OWN_HIDDEN_MS = 5000; // it takes a connection from other tabs

const scope = self as unknown as HubScope & { onconnect: (event: MessageEvent) => void };
const hub = new Hub("document" in self ? OWN_HIDDEN_MS : HIDDEN_MS);
scope.connectHub = (post) => hub.connect(post);
scope.onconnect = ({ ports: [port] }) => {
  if (!port) return;
  const take = hub.connect((message) => port.postMessage(message));
  port.onmessage = ({ data }: MessageEvent<ToHub>) => take(data);
};
