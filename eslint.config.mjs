/**
 * Rules for the JavaScript of the web console and of the tests: mistakes that tsc does not find, and one way to write
 * braces.
 *
 * tsc finds the others, such as unknown names, in the page (jsconfig.json); the tests have no types.
 */

const rules = {
  "array-callback-return": "error",
  "default-case-last": "error",
  eqeqeq: "error",
  "no-cond-assign": "error",
  "no-constant-binary-expression": "error",
  "no-duplicate-imports": "error",
  "no-empty": "error",
  "no-eval": "error",
  "no-fallthrough": "error",
  "no-implied-eval": "error",
  "no-new-func": "error",
  "no-self-compare": "error",
  "no-throw-literal": "error",
  "no-unreachable-loop": "error",
  "no-unsafe-finally": "error",
  "no-unsafe-optional-chaining": "error",
  "no-unused-expressions": "error",
  "no-unused-private-class-members": "error",
  "no-unused-vars": ["error", { args: "none" }],
  "no-useless-return": "error",
  "no-var": "error",
  "prefer-const": "error",
  // A body that fits on the line of its condition has no braces; all others have.
  "brace-style": ["error", "1tbs", { allowSingleLine: true }],
  curly: ["error", "multi-line"],
  "nonblock-statement-body-position": "error",
};

const GLOBALS = `AbortController Blob Buffer CustomEvent Event EventTarget ReadableStream Response TextDecoder TextEncoder
  URL URLSearchParams clearInterval clearTimeout console crypto document fetch process queueMicrotask setImmediate
  setInterval setTimeout structuredClone`;

export default [
  { ignores: ["twisted_exec/web/page/vendor/"] },
  { files: ["twisted_exec/web/page/**/*.js"], rules },
  {
    files: ["**/*.mjs"],
    languageOptions: { globals: Object.fromEntries(GLOBALS.split(/\s+/).map((name) => [name, "readonly"])) },
    rules: { ...rules, "no-dupe-keys": "error", "no-undef": "error" },
  },
];
