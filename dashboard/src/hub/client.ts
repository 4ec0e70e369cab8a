/** This tab's end of the hub. Where there is no SharedWorker, the tab has a hub of its own. */

import type { Address } from "../api/address";
import { adoptClock } from "../api/clock";
import type { FromHub, HubScope, News, ToHub, Wish } from "./messages";
import workerUrl from "./worker?sharedworker&url";

const TICK_MS = 5000;
const MOST_SILENT_TICKS = 9; // ticks, not seconds: none passes while the machine sleeps

export class HubClient {
  private readonly wishes = new Map<number, { wish: Wish; take: (news: News) => void }>();
  private send: (message: ToHub) => void = () => undefined;
  private hasOwn = false;
  private silentTicks = 0;
  private keepsHidden = false;
  private hasLeft = false; // another page is here, and this one may come back: an answer would throw it away
  private next = 0;
  private readonly script: string;

  /** Tabs of all namespaces and of one share the worker: its address is that of the page of all. */
  constructor({ base }: Address) {
    this.script = `${base}/dashboard/${workerUrl.split("/").pop() ?? ""}`;
    this.connect();
    this.see();
    document.addEventListener("visibilitychange", () => this.see());
    window.addEventListener("online", () => this.retry());
    window.addEventListener("pagehide", () => this.leave());
    window.addEventListener("pageshow", (event) => event.persisted && this.comeBack());
    setInterval(() => {
      if (!this.hasOwn && this.silentTicks++ >= MOST_SILENT_TICKS) void this.useOwn();
    }, TICK_MS);
  }

  /** `take` is told all that is known, and then what changes, until what is returned is called. */
  follow(wish: Wish, take: (news: News) => void): () => void {
    const id = this.next++;
    this.wishes.set(id, { wish, take });
    this.send({ do: "follow", id, wish });
    return () => {
      this.wishes.delete(id);
      this.send({ do: "leave", id });
    };
  }

  retry(): void {
    this.send({ do: "retry" });
  }

  /** Whether what is followed is followed while the tab is hidden too. */
  keep(keeps: boolean): void {
    this.keepsHidden = keeps;
    this.see();
  }

  private leave(): void {
    this.send({ do: "close" });
    this.hasLeft = true;
  }

  /** What is shown is of before: until the server has answered, that is said. */
  private comeBack(): void {
    for (const [id, { take }] of this.wishes) take({ id, link: { state: "connecting", wasAway: true } });
    this.begin();
  }

  private see(): void {
    if (this.hasLeft) return;
    const keeps = this.keepsHidden && !this.hasOwn; // each tab would have a connection: a browser has six
    this.send({ do: "see", isSeen: !document.hidden, keeps });
  }

  private connect(): void {
    try {
      const worker = new SharedWorker(this.script);
      worker.onerror = () => void this.useOwn();
      worker.port.onmessage = ({ data }: MessageEvent<FromHub>) => this.take(data);
      this.send = (message) => worker.port.postMessage(message);
    } catch {
      void this.useOwn(); // there is no SharedWorker, or it is not allowed
    }
  }

  private async useOwn(): Promise<void> {
    if (this.hasOwn) return;
    this.hasOwn = true;
    this.send({ do: "close" });
    this.send = () => undefined;
    try {
      await import(/* @vite-ignore */ this.script);
    } catch {
      const error = { code: 0, message: "A part of the page cannot be loaded. Load the page again." };
      for (const [id, { take }] of this.wishes) take({ id, link: { state: "lost", error } });
      return;
    }
    this.send = (self as unknown as HubScope).connectHub((message) => this.take(message));
    this.begin();
  }

  private begin(): void {
    this.hasLeft = false;
    this.see();
    for (const [id, { wish }] of this.wishes) this.send({ do: "follow", id, wish });
  }

  private take(message: FromHub): void {
    this.silentTicks = 0;
    if ("isForgotten" in message) return this.begin();
    adoptClock(message.aheadMs); // before an age is drawn
    if ("isAlive" in message) this.send({ do: "here" });
    else this.wishes.get(message.id)?.take(message);
  }
}
