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

  /** All that is known, for one that has just come. */
  greet(subscriber: Subscriber): void {
    subscriber.tell({ link: this.link });
  }

  protected tell(news: Omit<News, "id">): void {
    for (const subscriber of this.subscribers) subscriber.tell(news);
  }

  /** What a source that has just begun does not know is as it was: how old the document is. */
  say(link: Link): void {
    this.link = { ...link, asOf: link.asOf ?? this.link.asOf };
    this.tell({ link: this.link });
  }

  get isSeen(): boolean {
    return [...this.subscribers].some(({ tab }) => tab.isSeen || tab.keeps);
  }
}
