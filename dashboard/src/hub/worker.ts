/** The hub of all tabs, as a SharedWorker. */

import { Hub } from "./hub";
import type { ToHub } from "./messages";

const HIDDEN_MS = 5 * 60_000;

const hub = new Hub(HIDDEN_MS);
(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = ({ ports: [port] }) => {
  if (!port) return;
  const take = hub.connect((message) => port.postMessage(message));
  port.onmessage = ({ data }: MessageEvent<ToHub>) => take(data);
};
