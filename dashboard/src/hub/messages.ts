/** What a tab and the hub tell each other. All of it can be copied from one process to another. */

import type { Address } from "../api/address";
import type { JobRef } from "../api/requests";
import type { JobDocument } from "../api/types";
import type { Link } from "../api/watch";
import type { Job } from "../model/job";

export type Wish =
  | {
      readonly what: "list";
      readonly address: Address;
      readonly namespace: string | undefined;
    }
  | { readonly what: "job"; readonly address: Address; readonly ref: JobRef };

export type ToHub =
  | { do: "follow"; id: number; wish: Wish }
  | { do: "leave"; id: number }
  /** `keeps`: what the tab follows is followed while it is hidden too. */
  | { do: "see"; isSeen: boolean; keeps: boolean }
  | { do: "retry" }
  | { do: "here" }
  | { do: "close" };

export interface News {
  /** Of the wish. */
  readonly id: number;
  readonly link?: Link;
  /** Jobs that have come or changed, and keys of those that have gone. */
  readonly jobs?: readonly Job[];
  readonly gone?: readonly string[];
  /** A whole list begins, or ends: what was not between is gone. */
  readonly begins?: boolean;
  readonly ends?: boolean;
  /** What the server answers where the list has TrainJobs only, for want of a right. */
  readonly lacks?: string;
  /** How many jobs a list that is being read has left. */
  readonly remaining?: number;
  readonly document?: JobDocument;
  readonly isDeleted?: boolean;
}

/** `isAlive`: to be answered with "here"; `aheadMs` is of the server's clock. `isForgotten`: the tab was silent for so long that it has to begin again. */
export type FromHub =
  (News & { aheadMs: number | undefined }) | { isAlive: true; aheadMs: number | undefined } | { isForgotten: true };

/** Where the hub's script has run. */
export interface HubScope {
  /** What comes from a tab is given to what is returned. */
  connectHub: (post: (message: FromHub) => void) => (message: ToHub) => void;
}
