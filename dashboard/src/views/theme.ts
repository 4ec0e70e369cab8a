import { useSettings } from "../settings";
import { useMedia, usePrinting } from "./hooks";

export function useIsDark(): boolean {
  const { theme } = useSettings();
  const isSystemDark = useMedia("(prefers-color-scheme: dark)");
  const isPrinted = usePrinting(); // paper is light
  return !isPrinted && (theme === "auto" ? isSystemDark : theme === "dark");
}
