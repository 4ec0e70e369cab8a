/** Something that tabs follow, read once for all of them. */

import type { Link } from "../api/watch";
import type { News } from "./messages";

export interface Subscriber {
  readonly tab: { readonly isSeen: boolean; readonly hiddenAt: number; readonly keeps: boolean };
  tell(news: Omit<News, "id">): void;
}

export abstract class Feed {
  readonly subscribers = new Set<Subscriber>();
  link: Link = { state: "connecting" };
  /** Those that have come since the server was last asked: another user may have logged in by then. */
  private readonly unproven = new Set<Subscriber>();
  private isProving = false;

  /** What is known is told to one that comes later when the server has answered its user. */
  add(subscriber: Subscriber): void {
    this.subscribers.add(subscriber);
    if (!this.isKnown) return this.greet(subscriber);
    this.unproven.add(subscriber);
    if (this.link.state === "live") void this.prove();
  }

  remove(subscriber: Subscriber): void {
    this.subscribers.delete(subscriber);
    this.unproven.delete(subscriber);
  }

  /** Whether anything is known that the server has told. */
  protected abstract get isKnown(): boolean;

  /** Asks the server with the rights of who views now; throws when it gives nothing, and says a refusal itself. */
  protected abstract check(): Promise<void>;

  /** Asks for those that are still not proven, if there are any. */
  async prove(): Promise<void> {
    if (this.isProving || this.unproven.size === 0) return;
    this.isProving = true;
    const asked = [...this.unproven];
    try {
      await this.check();
      this.welcome(asked);
    } catch {
      // refused, which is said; or it is asked again with the next tick
    } finally {
      this.isProving = false;
    }
  }

  private welcome(found: Iterable<Subscriber>): void {
    for (const one of found) if (this.unproven.delete(one)) this.greet(one);
  }

  /** All that is known, for one that has just come. */
  protected greet(subscriber: Subscriber): void {
    subscriber.tell({ link: this.link });
  }

  protected tell(news: Omit<News, "id">): void {
    for (const subscriber of this.subscribers) if (!this.unproven.has(subscriber)) subscriber.tell(news);
  }

  /** What a source that has just begun does not know is as it was: how old the document is. */
  say(link: Link): void {
    const isBad = this.link.state === "lost" || this.link.state === "refused";
    if (link.state === "connecting" && isBad) return; // until there is an answer, what was said is so
    const hasAnswered = link.state === "live" && this.link.state !== "live"; // with the rights of now
    this.link = { ...link, asOf: link.asOf ?? this.link.asOf };
    this.tell({ link: this.link });
    if (hasAnswered) this.welcome([...this.unproven]);
    if (link.state === "live") return;
    for (const one of this.unproven) one.tell({ link: { ...link, asOf: undefined } });
  }

  get isSeen(): boolean {
    return [...this.subscribers].some(({ tab }) => tab.isSeen || tab.keeps);
  }
}
