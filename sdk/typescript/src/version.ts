/** The version of the SDK, as in package.json. */
export const VERSION = "0.1.0";
