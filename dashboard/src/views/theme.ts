import { useSettings } from "../settings";
import { useMedia } from "./hooks";

export function useIsDark(): boolean {
  const { theme } = useSettings();
  const isSystemDark = useMedia("(prefers-color-scheme: dark)");
  return theme === "auto" ? isSystemDark : theme === "dark";
}
