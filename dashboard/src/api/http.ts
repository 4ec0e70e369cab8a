/** Requests with the viewer's own identity, and what can go wrong with them. */

import { readClock } from "./clock";
import type { Status } from "./types";

/** An answer other than 2xx. `message` is the server's own sentence where it gave one. */
export class ApiError extends Error {
  constructor(
    readonly code: number,
    readonly reason: string,
    message: string,
    readonly retryAfterSeconds?: number,
    /** Name of the object that it is about. */
    readonly subject?: string,
  ) {
    super(message);
  }
}

/** No answer at all: the network, a proxy that ended, a server that restarts. */
export class ConnectionLost extends Error {}

/** Not even the beginning of one. What answers there next may be another server. */
export class NobodyAnswers extends ConnectionLost {}

/** Whether `name` is not there. Every other 404 is of a server, or of a proxy, that does not know the path for now. */
export const isAbsent = (error: unknown, name: string) =>
  error instanceof ApiError && error.code === 404 && error.reason === "NotFound" && error.subject === name;

/** An error as it can be copied to another tab. `code` is 0 where there was no answer. */
export interface Fault {
  readonly code: number;
  readonly message: string;
}

export const toFault = (error: Error): Fault => ({
  code: error instanceof ApiError ? error.code : 0,
  message: error.message,
});

const MAX_MESSAGE = 600;
const PATIENCE_MS = 60_000; // for a whole answer

/** The answer's head; its body may be a stream without end. Throws ApiError, or whatever the browser does. */
export async function request(path: string, accept: string, signal: AbortSignal, body?: object): Promise<Response> {
  const askedAt = Date.now();
  const how: RequestInit = {
    headers: { Accept: accept, ...(body && { "Content-Type": "application/json" }) },
    credentials: "same-origin",
    cache: "no-store",
    redirect: "manual",
    signal,
    ...(body && { method: "POST", body: JSON.stringify(body) }),
  };
  const answer = await fetch(path, how).catch((cause: unknown) => {
    throw signal.aborted ? cause : new NobodyAnswers("The connection to the server was lost.", { cause });
  });
  readClock(answer.headers.get("Date"), askedAt, Date.now());
  // The API neither redirects nor has pages of HTML: that is a proxy which wants a login.
  if (answer.type === "opaqueredirect") throw new ApiError(401, "", LOGIN("is sent to another address"));
  if (!answer.ok) throw await toError(answer);
  if (/html/i.test(answer.headers.get("Content-Type") ?? ""))
    throw new ApiError(401, "", LOGIN("is answered by a page of HTML"));
  return answer;
}

const LOGIN = (what: string) => `A request ${what}, as by a proxy that asks for a login. Load the page again.`;

export function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return whole(signal, async (either) => (await request(path, "application/json", either)).json() as Promise<T>);
}

export function postJson<T>(path: string, body: object, signal?: AbortSignal): Promise<T> {
  return whole(signal, async (either) => (await request(path, "application/json", either, body)).json() as Promise<T>);
}

/** With what its head says of the kinds that it is of: see Watch. */
export function getJsonOf<T>(path: string, signal?: AbortSignal): Promise<{ value: T; kinds: string | null }> {
  return whole(signal, async (either) => {
    const answer = await request(path, "application/json", either);
    return { value: (await answer.json()) as T, kinds: kindsOf(answer) };
  });
}

/** The kinds that the viewer may read, of a list or watch of all kinds. */
export const kindsOf = (answer: Response) => answer.headers.get("Readable-Resources");

export function getText(path: string, accept: string, signal?: AbortSignal): Promise<string> {
  return whole(signal, async (either) => (await request(path, accept, either)).text());
}

/** Whatever the browser raises while bytes are on their way means one thing, unless `signal` has ended it. */
async function whole<T>(signal: AbortSignal | undefined, work: (either: AbortSignal) => Promise<T>): Promise<T> {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), PATIENCE_MS);
  try {
    return await work(signal ? AbortSignal.any([signal, late.signal]) : late.signal);
  } catch (error) {
    if (error instanceof ApiError || error instanceof NobodyAnswers || signal?.aborted) throw error;
    const why = late.signal.aborted
      ? `No answer has come within ${PATIENCE_MS / 1000} s.`
      : "The connection to the server was lost.";
    throw new ConnectionLost(why, { cause: error });
  } finally {
    clearTimeout(timer);
  }
}

async function toError(answer: Response): Promise<ApiError> {
  let status: Partial<Status> = {};
  try {
    status = (await answer.json()) as Partial<Status>;
  } catch {
    // a proxy's page of HTML, or nothing: the code has to do
  }
  return statusError({ ...status, code: answer.status }, answer.statusText);
}

/** Of a Status, from an answer or from a watch's ERROR event. */
export function statusError(status: Partial<Status>, fallback = ""): ApiError {
  const code = status.code ?? 500;
  const message = (status.message || fallback || `The server answered ${code}.`).slice(0, MAX_MESSAGE);
  return new ApiError(code, status.reason || "", message, status.details?.retryAfterSeconds, status.details?.name);
}
