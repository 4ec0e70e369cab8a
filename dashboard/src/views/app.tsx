/** The page: its frame, and which of the two views is in it. */

import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

import { pageOf, parseAddress, type Address } from "../api/address";
import { HubClient } from "../hub/client";
import { Fleet } from "../model/fleet";
import { fleetLink, formatRoute, parseRoute, type Route } from "../model/routes";
import { Sparks } from "../model/sparks";
import {
  ChooseSettings,
  loadSettings,
  merged,
  onSettingsOfOtherTabs,
  remember,
  saveSettings,
  SettingsContext,
  useSettings,
  type Settings,
} from "../settings";
import { ConnectionLine } from "./connection-line";
import { FleetView } from "./fleet-view";
import { SettingsMenu } from "./settings-menu";
import { Later, loadDocsView, loadJobView } from "./later";
import { Text } from "./parts";

export function App() {
  const address = useMemo(() => parseAddress(location.pathname), []);
  const [settings, choose] = useSettingsOfBrowser(address);
  const [route, go] = useRoute();
  return (
    <SettingsContext.Provider value={settings}>
      <ChooseSettings.Provider value={choose}>
        <header class="top">
          <a class="skip" href="#content" onClick={skipTo}>
            Skip to the content
          </a>
          <a class="home" href={fleetLink()}>
            <Logo />
            Training jobs
          </a>
          <Scope address={address} />
          <span class="fill" />
          <SettingsMenu settings={settings} choose={choose} />
        </header>
        <Views address={address} route={route} go={go} />
      </ChooseSettings.Provider>
    </SettingsContext.Provider>
  );
}

interface ViewsProps {
  address: Address;
  route: Route;
  go: (route: Route, replace?: boolean) => void;
}

function Views({ address, route, go }: ViewsProps) {
  const hub = useMemo(() => new HubClient(address), [address]);
  const fleet = useMemo(() => new Fleet(hub, address), [hub, address]);
  const sparks = useMemo(() => new Sparks(address), [address]);
  useEffect(() => () => fleet.stop(), [fleet]);
  useEffect(() => {
    if (route.view === "fleet") fleet.start();
  }, [fleet, route.view]);
  useEffect(prepareJobView, []);
  const { notifies } = useSettings();
  useEffect(() => hub.keep(notifies), [hub, notifies]);
  if (route.view === "job") {
    const { plural, namespace, name } = route.ref;
    const key = `${plural}/${namespace}/${name}`;
    return (
      <Later key="job" load={loadJobView} what="job">
        {({ JobView }) => <JobView key={key} address={address} fleet={fleet} route={route} go={go} />}
      </Later>
    );
  }
  if (route.view === "docs") {
    return (
      <Later key="docs" load={loadDocsView} what="documentation">
        {({ DocsView }) => <DocsView route={route} />}
      </Later>
    );
  }
  return (
    <>
      <ConnectionLine fleet={fleet} />
      <FleetView address={address} fleet={fleet} sparks={sparks} filter={route.filter} go={go} />
    </>
  );
}

const IDLE_MS = 5000;

/** The list comes first. What a job is drawn with is there when somebody opens one. */
function prepareJobView(): () => void {
  const timer = setTimeout(() => void loadJobView().catch(() => undefined), IDLE_MS);
  return () => clearTimeout(timer);
}

function useRoute(): [Route, (route: Route, replace?: boolean) => void] {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const listen = () => setHash(location.hash);
    listen(); // it may have changed since the first drawing
    window.addEventListener("hashchange", listen);
    window.addEventListener("popstate", listen);
    return () => {
      window.removeEventListener("hashchange", listen);
      window.removeEventListener("popstate", listen);
    };
  }, []);
  const go = useCallback((route: Route, replace = false) => {
    const next = formatRoute(route);
    if (replace) history.replaceState(null, "", next);
    else history.pushState(null, "", next);
    setHash(next);
  }, []);
  const route = useMemo(() => parseRoute(hash), [hash]);
  return [route, go];
}

function useSettingsOfBrowser(address: Address): [Settings, (settings: Settings) => void] {
  const [settings, setSettings] = useState(() => {
    const loaded = loadSettings();
    return address.namespace === undefined ? loaded : remember(loaded, address.namespace);
  });
  const known = useRef(settings);
  const take = (next: Settings) => {
    known.current = next;
    setSettings(next);
  };
  const choose = useCallback((chosen: Settings) => {
    const next = merged(known.current, chosen);
    saveSettings(next);
    take(next);
  }, []);
  useEffect(() => {
    // Another tab may have saved since this page has read: only the namespace is added.
    if (address.namespace !== undefined) saveSettings(remember(loadSettings(known.current), address.namespace));
    return onSettingsOfOtherTabs(() => take(loadSettings(known.current)));
  }, []);
  useLayoutEffect(() => {
    document.documentElement.dataset["theme"] = settings.theme;
  }, [settings.theme]);
  return [settings, choose];
}

function Scope({ address }: { address: Address }) {
  if (address.namespace === undefined) return null;
  return (
    <span class="scope">
      namespace <Text>{address.namespace}</Text> · <a href={pageOf(address)}>all namespaces</a>
    </span>
  );
}

function skipTo(event: Event) {
  event.preventDefault(); // the address after # is ours
  document.getElementById("content")?.focus();
}

function Logo() {
  return (
    <svg class="logo" viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
      <rect width="32" height="32" rx="8" />
      <path d="M5 8c4 9 7 13 12 14s7 1 10 2" />
      <circle cx="27" cy="24" r="2.4" />
    </svg>
  );
}
