import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";

/** Tests in Chromium: two files at a time where there are two cores, each of the two processes with one browser. */
export default defineConfig({
  test: {
    include: ["browser/**/*.test.ts"],
    maxWorkers: Math.min(2, availableParallelism()),
    isolate: false, // one browser for all files
    testTimeout: 240_000, // above what tests wait for; only a hang takes so long
    hookTimeout: 240_000,
    retry: 1, // a busy machine's timing; the report names each test that needed it
  },
});
