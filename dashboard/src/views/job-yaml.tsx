import { useState } from "preact/hooks";

import { GROUP, type Address } from "../api/address";
import { getYaml, type JobRef } from "../api/requests";
import { visibleLines } from "../model/text";
import { Code } from "./parts";
import { useLoaded } from "./hooks";

interface Props {
  address: Address;
  jobRef: JobRef;
  version: string | undefined;
}

/** The document as the server gives it, read when it is opened and again when asked. */
export function Yaml({ address, jobRef, version }: Props) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="panel" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <h2>YAML and kubectl</h2>
      </summary>
      {isOpen && <Document address={address} jobRef={jobRef} version={version} />}
    </details>
  );
}

function Document({ address, jobRef, version }: Props) {
  const [shown, show] = useState(version);
  const yaml = useLoaded((signal) => getYaml(address, jobRef, signal), [address, jobRef.namespace, jobRef.name, shown]);
  return (
    <>
      <Code>{commands(jobRef)}</Code>
      {yaml.state === "loading" && <p class="muted">Reading the document</p>}
      {yaml.state === "failed" && <p class="muted">{yaml.error.message}</p>}
      {yaml.state === "here" && <Code>{visibleLines(yaml.value)}</Code>}
      {shown !== version && (
        <button type="button" class="button" onClick={() => show(version)}>
          It has changed: read it again
        </button>
      )}
    </>
  );
}

function commands({ plural, namespace, name }: JobRef): string {
  const resource = plural === "trainjobs" ? "tjp" : `${plural}.${GROUP}`;
  return [
    `kubectl get ${resource} ${name} -n ${namespace} -o yaml`,
    `kubectl get ${resource} ${name} -n ${namespace} -w`,
    `kubectl wait ${resource}/${name} -n ${namespace} --for=condition=Complete --timeout=24h`,
  ].join("\n");
}
