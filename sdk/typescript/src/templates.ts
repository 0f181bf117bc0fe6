/** Templates: images that the account builds from Dockerfiles. */

import { platform } from "#platform";
import { BuildLog } from "./build-log.js";
import type { BuildLogOptions, BuildOutput } from "./build-log.js";
import { Effect } from "./call-progress.js";
import { cleanupStep } from "./cleanup.js";
import type { WorkLimit } from "./cleanup.js";
import { defined, idempotencyHeaders, metadataQuery, queryString, signalOf } from "./context.js";
import type { CallOptions } from "./context.js";
import { resourcesAndNetwork, SANDBOX_LIMITS } from "./create.js";
import type { SandboxLimits } from "./create.js";
import { Described } from "./described.js";
import { argumentError, BuildFailed, configurationError, networkError, TemplateNotFound } from "./error-classes.js";
import { randomId } from "./ids.js";
import type { BuildContext, Template, TemplateBody, TemplateDeleted, TemplateState } from "./models.js";
import { checkNames } from "./option-names.js";
import type { OptionNames } from "./option-names.js";
import { LARGEST_PAGE, PagedList } from "./paging.js";
import type { Page } from "./paging.js";
import { contentPayload, jsonPayload, streamPayload } from "./payload.js";
import type { Content, Payload } from "./payload.js";
import type { Call, Transport } from "./transport.js";
import { millisecondsOf } from "./units.js";
import type { Duration } from "./units.js";

const TAR = "application/x-tar";
/** The default of the service. */
const DOCKERFILE = "Dockerfile";

/** A tar archive, which may be compressed with gzip. */
export type ContextArchive = Exclude<Content, string>;

/** Options of `uploadContext`. */
export interface UploadContextOptions extends CallOptions {
  /** The path of the Dockerfile in the directory. It is uploaded even if `.dockerignore` excludes it. Default: `Dockerfile`. */
  dockerfilePath?: string;
}

/**
 * Options of a build that is started. The resources, the network policy and the isolation are those of the sandboxes in which the
 * steps run.
 */
export interface StartBuildOptions extends SandboxLimits, CallOptions {
  /** The files for `COPY` and `ADD`: a directory, without what its `.dockerignore` excludes, or an uploaded context. */
  context?: string | BuildContext;
  /** The text of the Dockerfile. Default: the file at `dockerfilePath` in the context. */
  dockerfile?: string;
  /** The path of the Dockerfile in the context. Default: `Dockerfile`. */
  dockerfilePath?: string;
  /** Values of build arguments, which the service stores: not for secrets. */
  buildArgs?: Readonly<Record<string, string>>;
  /** A shell command that runs in every sandbox from the template. */
  startCommand?: string;
  /** A shell command that succeeds when the start command is ready. */
  readyCommand?: string;
  /** The time for the start command to become ready. Default: 60,000. */
  readyTimeoutMs?: number;
  /** The same as a text with its unit, such as `90s`. */
  readyTimeout?: Duration;
  /** The time for all steps together. Default: 1,800,000. */
  timeoutMs?: number;
  /** The same as a text with its unit, such as `1h`. */
  timeout?: Duration;
  /** Runs all steps, also those whose results an earlier build left. */
  noCache?: boolean;
  /** Tags, by which lists can be filtered. */
  metadata?: Readonly<Record<string, string>>;
  /**
   * A request with the same key within 24 hours, from any process, returns the same template. It must have the same `context`: two
   * calls with a directory upload two contexts, so the second one is refused.
   */
  idempotencyKey?: string;
}

/** Options of `wait`. */
export interface WaitForBuildOptions extends CallOptions {
  /** Called for each event of the log. */
  onLog?: (output: BuildOutput) => void;
}

/** Options of `build`. */
export interface BuildOptions extends StartBuildOptions, WaitForBuildOptions {}

/** Filters of templates. */
export interface ListTemplatesOptions extends CallOptions {
  /** Only templates with this name. */
  name?: string;
  /** Only templates in this state. */
  state?: TemplateState;
  /** Tags that a template must have, all of them. */
  metadata?: Readonly<Record<string, string>>;
  /** The number of templates of a request: 1 to 100. Default: 100. */
  pageSize?: number;
}

const START: OptionNames<StartBuildOptions> = {
  ...SANDBOX_LIMITS,
  ...{ context: true, dockerfile: true, dockerfilePath: true, buildArgs: true, startCommand: true, readyCommand: true },
  ...{ readyTimeoutMs: true, readyTimeout: true, timeoutMs: true, timeout: true, noCache: true, metadata: true },
  ...{ idempotencyKey: true, signal: true },
};
const WAIT: OptionNames<WaitForBuildOptions> = { onLog: true, signal: true };
const UPLOAD: OptionNames<UploadContextOptions> = { dockerfilePath: true, signal: true };
const LOGS: OptionNames<BuildLogOptions> = { after: true, signal: true };
const LIST: OptionNames<ListTemplatesOptions> = { name: true, state: true, metadata: true, pageSize: true, signal: true };

/** The templates of the account. The name of a template that is ready can be the image of a create. */
export class Templates extends Described {
  readonly #transport: Transport;

  /** For `Sandboxd.templates`. */
  constructor(transport: Transport) {
    super();
    this.#transport = transport;
  }

  /**
   * Builds a template and returns it when it is ready. Throws {@link BuildFailed} if the build fails or is cancelled. If the call
   * is aborted or fails otherwise, the build is cancelled in the background, unless the caller gave an `idempotencyKey`.
   */
  async build(name: string, options: BuildOptions = {}): Promise<Template> {
    const { onLog, signal } = checkNames(options, { ...START, ...WAIT });
    return this.#begin(name, options, (template) => this.#ended(template, onLog, signal));
  }

  /**
   * Starts a build and returns the template once the service has accepted it. The build continues without its client. If the call is
   * aborted, the build is cancelled in the background, unless the caller gave an `idempotencyKey`.
   */
  async start(name: string, options: StartBuildOptions = {}): Promise<Template> {
    return this.#begin(name, checkNames(options, START), (template) => template);
  }

  /** Waits for the end of a build and returns the template. Throws {@link BuildFailed} if the build failed or was cancelled. */
  async wait(template: Template | string, options: WaitForBuildOptions = {}): Promise<Template> {
    const { onLog, signal } = checkNames(options, WAIT);
    return this.#ended(template, onLog, signal);
  }

  /** The log of a build, from its beginning to the end of the build. Lost connections are established again. */
  logs(template: Template | string, options: BuildLogOptions = {}): BuildLog {
    return new BuildLog(this.#transport, pathOf(template, "/logs"), checkNames(options, LOGS));
  }

  /**
   * Uploads the files for builds, which the service stores for an hour. `context` is a directory of this machine, without what its
   * `.dockerignore` excludes, or a tar archive.
   */
  async uploadContext(context: string | ContextArchive, options: UploadContextOptions = {}): Promise<BuildContext> {
    const { dockerfilePath = DOCKERFILE, signal } = checkNames(options, UPLOAD);
    const isDirectory = typeof context === "string";
    return this.#upload(isDirectory ? directoryPayload(context, dockerfilePath) : contentPayload(context, TAR), signal);
  }

  /** Returns a template by its id, or the newest one with a name, with the progress of its build. */
  async get(id: string, options: CallOptions = {}): Promise<Template> {
    const signal = signalOf(options);
    return this.#transport.json<Template>({ method: "GET", path: pathOf(id), safety: "repeatable", signal });
  }

  /** Lists templates and builds, newest first. */
  list(options: ListTemplatesOptions = {}): PagedList<Template> {
    const { name, state, metadata, signal, pageSize = LARGEST_PAGE } = checkNames(options, LIST);
    return new PagedList(
      (offset) => {
        const query = { name, state, limit: pageSize, offset, ...metadataQuery(metadata) };
        const path = `/v1/templates${queryString(query)}`;
        return this.#transport.json<Page<Template>>({ method: "GET", path, safety: "repeatable", signal });
      },
      (template) => template.id,
    );
  }

  /** Cancels a build and returns the template when nothing of the build runs any more. Has no effect if the build has ended. */
  async cancel(template: Template | string, options: CallOptions = {}): Promise<Template> {
    const signal = signalOf(options);
    return this.#transport.json<Template>({ method: "POST", path: pathOf(template, "/cancel"), safety: "repeatable", signal });
  }

  /** Deletes a template, given with its id or a name that no other one has, after its build is cancelled. Sandboxes that were created from it are not affected. */
  async delete(template: Template | string, options: CallOptions = {}): Promise<TemplateDeleted> {
    const signal = signalOf(options);
    return this.#transport.json<TemplateDeleted>({ method: "DELETE", path: pathOf(template), safety: "after_answer", signal });
  }

  protected describe(): object {
    return {};
  }

  async #ended(template: Template | string, onLog: WaitForBuildOptions["onLog"], signal: AbortSignal | undefined): Promise<Template> {
    for await (const output of this.logs(template, signal === undefined ? {} : { signal })) {
      onLog?.(output);
      if (output.type !== "done") continue;
      if (output.template.state === "ready") return output.template;
      throw new BuildFailed(output.template);
    }
    throw networkError("the log ended before the build did");
  }

  /** Starts a build and returns the result of `then`. Cancels the build in the background if that fails or is aborted. */
  async #begin(
    name: string,
    options: StartBuildOptions,
    then: (template: Template) => Template | Promise<Template>,
  ): Promise<Template> {
    const { idempotencyKey, signal } = options;
    const effect = new Effect();
    const call: Call = {
      method: "POST",
      path: "/v1/templates",
      safety: "repeatable",
      payload: jsonPayload(await this.#body(name, options)),
      headers: idempotencyHeaders(idempotencyKey ?? randomId("key_")),
      effect,
      signal,
    };
    let template: Template | undefined;
    try {
      template = await this.#transport.json<Template>(call);
      return await then(template);
    } catch (error) {
      // Without a key of the caller, only this call can find the build.
      const mayRun = template === undefined ? signal?.aborted === true && effect.isPossible : !(error instanceof BuildFailed);
      if (idempotencyKey === undefined && mayRun) {
        const known = template;
        this.#transport.cleanups.start("cancelling the build of a cancelled call", (limit) => this.#undo(call, known, limit));
      }
      throw error;
    }
  }

  /** Cancels a build. If it is unknown, a request with the same idempotency key returns it. */
  async #undo(build: Call, known: Template | undefined, limit: WorkLimit): Promise<void> {
    const template = known ?? (await this.#transport.json<Template>({ ...build, ...cleanupStep(limit) }));
    const call: Call = { method: "POST", path: pathOf(template, "/cancel"), safety: "repeatable", ...cleanupStep(limit) };
    try {
      await this.#transport.json<Template>(call);
    } catch (error) {
      // It may have been deleted meanwhile, which cancelled its build.
      if (!(error instanceof TemplateNotFound)) throw error;
    }
  }

  /** The body of the request for a build, after the upload of its context. */
  async #body(name: string, options: StartBuildOptions): Promise<TemplateBody> {
    const { dockerfile, dockerfilePath, buildArgs, startCommand, readyCommand, isolation, noCache, metadata } = options;
    return defined<TemplateBody>({
      name,
      context: await this.#contextId(options),
      dockerfile,
      dockerfilePath,
      buildArgs,
      startCommand,
      readyCommand,
      readyTimeoutMs: millisecondsOf("readyTimeout", options.readyTimeout, options.readyTimeoutMs),
      isolation,
      timeoutMs: millisecondsOf("timeout", options.timeout, options.timeoutMs),
      noCache,
      metadata,
      ...resourcesAndNetwork(options),
    });
  }

  async #contextId(options: StartBuildOptions): Promise<string | undefined> {
    const { context, dockerfile, dockerfilePath = DOCKERFILE, signal } = options;
    if (typeof context !== "string") return context?.id;
    const payload = directoryPayload(context, dockerfile === undefined ? dockerfilePath : undefined);
    return (await this.#upload(payload, signal)).id;
  }

  async #upload(payload: Payload, signal: AbortSignal | undefined): Promise<BuildContext> {
    // A second upload costs space for an hour only.
    const call: Call = { method: "POST", path: "/v1/templates/contexts", safety: "repeatable", payload, signal };
    return this.#transport.json<BuildContext>(call);
  }
}

/** The archive of a directory. `dockerfile` is the path of the file that is packed even if `.dockerignore` excludes it. */
function directoryPayload(directory: string, dockerfile: string | undefined): Payload {
  const { directories } = platform;
  if (directories === undefined) {
    throw configurationError("directories are not available in this runtime; use uploadContext with an archive");
  }
  return streamPayload(() => directories.packContext(directory, dockerfile), TAR, true);
}

function pathOf(template: Template | string, rest = ""): string {
  const id = typeof template === "string" ? template : template.id;
  // An id of something else is a mistake, not a name.
  const isName = !/^(sb|snap|tpl|ex)_/.test(id) && !["", ".", ".."].includes(id);
  if (!isName && !/^tpl_[0-9a-z]+$/.test(id)) throw argumentError("templateId", `'${id}' is not a template id`);
  return `/v1/templates/${encodeURIComponent(id)}${rest}`;
}
