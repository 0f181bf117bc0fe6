import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["test/examples/", "dist/", "node_modules/"] },
  {
    files: ["src/**/*.ts", "test/**/*.ts"],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      "max-lines": ["error", 400],
      "max-lines-per-function": ["error", { max: 70 }],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
    },
  },
  { files: ["src/models.ts"], rules: { "max-lines": "off" } },
  { files: ["test/**/*.ts"], rules: { "max-lines-per-function": "off" } },
);
