/** What stands in place of the list when there is none: no job yet, or no right to list. */

import { useState } from "preact/hooks";

import { pageOf, type Address } from "../api/address";
import { getNamespaces } from "../api/requests";
import type { Fault } from "../api/http";
import { INSTRUMENT } from "../model/instrument";
import { docsLink } from "../model/routes";
import { visible } from "../model/text";
import { useSettings } from "../settings";
import { useLoaded } from "./hooks";
import { Code, Empty, Text } from "./parts";

export function NoJobs() {
  return (
    <Empty title="No training job yet">
      <p>
        Each training job, of whatever kind, appears here the moment it is created. Its progress comes from the training
        process; three lines in the loop are enough:
      </p>
      <Code>{INSTRUMENT}</Code>
      <p class="muted">
        A program that only prints its progress needs no change: run it as{" "}
        <code>python -m trainjob_progress.run -- python train.py</code>. More:{" "}
        <a href={docsLink({ page: "instrument", at: "" })}>how to instrument a training</a>.
      </p>
    </Empty>
  );
}

interface RefusedProps {
  address: Address;
  error: Fault;
  retry: () => void;
}

export function Refused({ address, error, retry }: RefusedProps) {
  const title =
    error.code === 401
      ? "The server does not know who you are"
      : error.code === 403
        ? address.namespace === undefined
          ? "You may not list the jobs of all namespaces"
          : "You may not list the jobs of this namespace"
        : "The jobs cannot be listed";
  return (
    <Empty title={title}>
      <p class="server-says">{visible(error.message)}</p>
      {error.code === 403 && (
        <>
          <p>
            It takes the right to <code>list</code> and <code>watch</code> <code>trainingjobs</code> and each kind that
            is to be seen, such as <code>trainjobs</code>, of <code>visibility.trainer.kubeflow.org</code>
            {address.namespace === undefined ? " in the whole cluster" : ""}. The roles view, edit and admin of a
            namespace include it there.
          </p>
          <NamespaceChoice address={address} />
        </>
      )}
      <button type="button" class="button" onClick={retry}>
        Try again
      </button>
    </Empty>
  );
}

function NamespaceChoice({ address }: { address: Address }) {
  const { namespaces: opened } = useSettings();
  const listed = useLoaded(() => getNamespaces(address), [address]);
  const [name, setName] = useState("");
  const offered = [...new Set([...opened, ...(listed.state === "here" ? listed.value : [])])].filter(
    (one) => one !== address.namespace,
  );
  return (
    <form
      class="namespace-choice"
      onSubmit={(event) => {
        event.preventDefault();
        if (name.trim()) location.assign(pageOf(address, name.trim()));
      }}
    >
      <label>
        Open {address.namespace === undefined ? "a" : "another"} namespace
        <input
          value={name}
          onInput={(event) => setName(event.currentTarget.value)}
          autocomplete="off"
          spellcheck={false}
        />
      </label>
      <button type="submit" class="button primary" disabled={!name.trim()}>
        Open
      </button>
      {offered.length > 0 && (
        <ul aria-label="Namespaces">
          {offered.slice(0, 50).map((one) => (
            <li key={one}>
              <a href={pageOf(address, one)}>
                <Text>{one}</Text>
              </a>
            </li>
          ))}
        </ul>
      )}
    </form>
  );
}
