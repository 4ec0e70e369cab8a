import { defineConfig } from "vitest/config";

/** Tests in Chromium. One file after the other: each has a browser of its own. */
export default defineConfig({
  test: {
    include: ["browser/**/*.test.ts"],
    fileParallelism: false,
    testTimeout: 240_000, // above what tests wait for; only a hang takes so long
    hookTimeout: 240_000,
    retry: 1, // a busy machine's timing; the report names each test that needed it
  },
});
