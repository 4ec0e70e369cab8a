// Writes what the built page consists of, and of which sources it was built, so that a test without Node can tell
// when it is stale: SHA256SUMS beside the assets, and sources.sha256 here.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";

const BUILT = "../visibility_api/dashboard";
// What a build reads. tests/unit/test_dashboard_build.py knows the same.
const SOURCES = ["index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.ts", "src"];
const isLeftOut = (name) => name.endsWith(".test.ts") || name.endsWith("/schema.d.ts");

function files(root, name) {
  const found = readdirSync(join(root, name), { withFileTypes: true, recursive: true });
  return found
    .filter((entry) => entry.isFile())
    .map((entry) => relative(root, join(entry.parentPath, entry.name)))
    .sort();
}

function sums(root, names) {
  const lines = names.map(
    (name) =>
      `${createHash("sha256")
        .update(readFileSync(join(root, name)))
        .digest("hex")}  ${name}`,
  );
  return `${lines.join("\n")}\n`;
}

const sources = SOURCES.flatMap((name) => (name === "src" ? files(".", name) : [name])).filter(
  (name) => !isLeftOut(name),
);
writeFileSync("sources.sha256", sums(".", sources.sort()));
writeFileSync(join(BUILT, "SHA256SUMS"), sums(BUILT, ["index.html", ...files(BUILT, "assets")]));
