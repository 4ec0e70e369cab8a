import { defineConfig } from "vitest/config";

export default defineConfig({
  base: "./", // the server writes the place of its assets into the page, whatever prefix it is behind
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../visibility_api/dashboard",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // one icon; inline it would be in the script too
    modulePreload: false, // what is loaded later is one file each
    reportCompressedSize: false,
  },
  test: { include: ["src/**/*.test.ts"], testTimeout: 120_000 },
});
