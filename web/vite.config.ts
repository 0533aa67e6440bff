import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// In development the page is served by Vite and the API by a running `threadline serve`.
const api = "http://127.0.0.1:4870";

export default defineConfig({
  plugins: [react()],
  base: "./",
  build: {
    target: "es2022",
    // The server's policy forbids data: scripts and fonts, so nothing is inlined.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: {
    host: "127.0.0.1",
    proxy: { "/api": api, "/healthz": api },
  },
});
