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
  ) {
    super(message);
  }
}

/** No answer at all: the network, a proxy that ended, a server that restarts. */
export class ConnectionLost extends Error {}

const MAX_MESSAGE = 600;

export async function request(path: string, accept: string, signal?: AbortSignal): Promise<Response> {
  const answer = await reach(path, accept, signal);
  if (!answer.ok) throw await toError(answer);
  return answer;
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  const answer = await request(path, "application/json", signal);
  return inFlight(signal, () => answer.json() as Promise<T>);
}

export async function getText(path: string, accept: string, signal?: AbortSignal): Promise<string> {
  const answer = await request(path, accept, signal);
  return inFlight(signal, () => answer.text());
}

async function reach(path: string, accept: string, signal?: AbortSignal): Promise<Response> {
  const askedAt = Date.now();
  const answer = await inFlight(signal, () =>
    fetch(path, { headers: { Accept: accept }, credentials: "same-origin", cache: "no-store", signal: signal ?? null }),
  );
  readClock(answer.headers.get("Date"), askedAt, Date.now());
  return answer;
}

/** Whatever the browser raises while bytes are on their way means one thing, unless we gave up ourselves. */
async function inFlight<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ConnectionLost("The connection to the server was lost.", { cause: error });
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
  return new ApiError(code, status.reason || "", message, status.details?.retryAfterSeconds);
}
