/** Comments of fields and types that docs/openapi.json does not describe. A description there takes precedence. */

/** Fields with the same meaning in all types. */
export const OF_FIELDS = {
  contextId: "The identifier of the context.",
  data: "The items.",
  path: "The absolute path.",
  port: "The number of the port.",
  stderr: "Standard error.",
  stdout: "Standard output.",
  cols: "The width in columns.",
  rows: "The height in rows.",
};

/** Types, and fields of one type. */
export const OF_NAMES = {
  EventKinds: "A type of events, or a group of types such as `exec.*`.",
  "CodeContext.cwd": "The working directory of the kernel.",
  "CodeContext.language": "The language of the kernel.",
  "CodeException.value": "The message.",
  "CodeExecution.results": "What the code displayed, in order.",
  "CodeResult.html": "The value as HTML.",
  "CodeResult.javascript": "The value as JavaScript, which displays it in a page.",
  "CodeResult.json": "The value as JSON.",
  "CodeResult.latex": "The value as LaTeX.",
  "CodeResult.markdown": "The value as Markdown.",
  "CodeResult.svg": "The value as an SVG.",
  "CodeResult.text": "The value as text.",
  "FileEntry.isDirectory": "Whether the entry is a directory.",
  "FileEntry.sizeBytes": "The size of the content.",
  "FileExists.exists": "Whether the path exists.",
  "Limits.createPerMinute": "Creates in a minute; `null` if unlimited.",
  "Limits.writePerMinute": "Requests that change something in a minute; `null` if unlimited.",
  "NetworkUsage.bytesIn": "Bytes that the sandbox received.",
  "NetworkUsage.bytesOut": "Bytes that the sandbox sent.",
  "Quota.used": "The amount used.",
  "Range.default": "The value without a setting.",
  "Range.max": "The largest value.",
  "Range.min": "The smallest value.",
  "ResourceSample.diskTotalBytes": "The size of the disk.",
  "ResourceSample.memoryTotalBytes": "The memory of the sandbox.",
  "Template.name": "The name, which can be the image of a create.",
  "Template.startCommand": "The command that runs in every sandbox from the template.",
  "TemplateError.message": "Why the build failed, for people.",
  "TemplateSteps.total": "The number of steps of the build.",
  "Unpacked.directories": "The number of directories.",
  "Unpacked.files": "The number of files.",
  "Unpacked.links": "The number of symbolic and hard links.",
};
