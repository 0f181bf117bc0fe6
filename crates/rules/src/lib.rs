//! Every decision of the service as a pure function: state transitions, validation, admission, quotas, limits, deadlines.
//!
//! No I/O, clock, logging or randomness. Time is passed as [`TimeMs`]. The crates above (engine, server) act on the decisions; a
//! refusal is a typed value, not a failure.
//!
//! ```text
//! a sandbox     lifecycle (states, deadlines, running time)   config (create)   egress, ports   snapshots   templates
//! a command     execution (requests, results)   output (capture, lines, offsets)   events
//! the caller    keys   listing   idempotency   quotas   rates (per minute)   reached_limit
//! the host      admission (capacity, pressure)   images (references, policy, eviction)
//! everywhere    text   time
//! ```

mod admission;
mod config;
mod egress;
mod events;
mod execution;
mod idempotency;
mod images;
mod keys;
mod lifecycle;
mod listing;
mod output;
mod ports;
mod quotas;
mod rates;
mod reached_limit;
mod snapshots;
mod templates;
mod text;
mod time;

pub use admission::capacity_warning::CapacityWarning;
pub use admission::pressure::{
    FreeTrend, Pressure, Shortage, Watermarks, disk_reserve_mb, free_after_writeback, memory_reserve_mb,
    promisable_disk_mb,
};
pub use admission::turns::Turns;
pub use admission::{
    Capacity, Exhausted, Host, Next, Overcommit, Resource, Slot, SlotKind, Slots, TooManyExecutions, Usage,
};
pub use config::error::ConfigError;
pub use config::isolation::{IsolationLevels, IsolationPolicy, IsolationRules};
pub use config::{ConfigRules, Integer, NetworkChange, Range, network_change, new_timeout, sandbox_config};
pub use egress::{
    AddressOwner, AddressVerdict, Closed, EgressRules, Networks, RESOLVER_PORTS, Ranges, UDP_PORTS_CLOSED,
    WEB_PORTS, network_text, parse_network, plain_name,
};
pub use events::{BadRunHeader, EventQuery, SHOWN_COMMAND_BYTES, event_query, run_header, shown_command};
pub use execution::code::{code_context, code_request, is_context_id};
pub use execution::detached::{DetachedCommand, detached_command, terminal_command};
pub use execution::environment::environment;
pub use execution::outcome::{
    CommandOutcome, EndCause, Ended, NeverStarted, ObservedCommand, OutOfMemory, ended_outcome, outcome,
};
pub use execution::retention::executions_to_drop;
pub use execution::signals::signal_name;
pub use execution::{ExecuteRefusal, ExecuteRules, execute_request};
pub use idempotency::{
    BadIdempotencyKey, IDEMPOTENCY_VALID_MS, Repeat, StoredRequest, idempotency_key, repeat, should_record,
};
pub use images::eviction::{ImageRetention, StoredImage, images_to_remove, stored_bytes};
pub use images::pattern::{BadImagePattern, ImagePattern};
pub use images::policy::{AddedPattern, AllowedVersions, ImagePolicy, ImageRefusal};
pub use images::pulled_bytes::{PullQuotaReached, PulledBytes};
pub use images::reference::{ImageReference, ImageVersion, is_same_image};
pub use images::{ImageListing, ImageOwner, image_is_listed};
pub use keys::{BadKey, BadLifetime, BadScopes, KeyLifetime, KeyText, Scope, Scopes, is_key_listed, key_end};
pub use lifecycle::cost::Prices;
pub use lifecycle::deadlines::{Activity, AutoPause, Deadline, Due, Expiry, Watch, next_deadline};
pub use lifecycle::expiry_notice::{expiry_notice, expiry_warning};
pub use lifecycle::interruptions::{GaveUp, MAX_INTERRUPTIONS, RepeatableWork, begin_work, suspects_last};
pub use lifecycle::operations::{AutoResume, LifecycleStep, Operation, OperationRefusal, decide};
pub use lifecycle::recovery::{HostRepair, Reconciliation, RecordRepair, reconcile};
pub use lifecycle::{Lifecycle, NextDisk, PausedProcesses, ProcessState, Runs};
pub use listing::samples::{SampleQuery, sample_query};
pub use listing::{ListQuery, QueryError, list_query};
pub use output::lines::{LineEnd, LineSplitter, MAX_PIECE_BYTES};
pub use output::position::{BadOutputPosition, OutputPosition};
pub use output::readers::{NeededOutput, OutputReaders, ReaderId};
pub use output::{CappedOutput, Captured, OUTPUT_BLOCK_BYTES};
pub use ports::{
    ExposeRequest, HostOf, MAX_PORTS, PortRefusal, ReservedName, SignedToken, expose_request, may_expose,
    port_label, token_lifetime_ms,
};
pub use quotas::{AccountUsage, OwnQuotas, Quota, QuotaExceeded, QuotaTable, Quotas, StoredQuotas};
pub use rates::{
    BadKeyLimits, Charge, KeyCharge, KeyLimits, KeyWindows, Limit, NO_LIMIT, PER_MINUTE_MAX, RateRefusal,
    RateSource, RateTable, Rates, SandboxCharge, SandboxWindows, Standing, Window, try_count_all,
    wall_seconds,
};
pub use reached_limit::ReachedLimit;
pub use snapshots::{
    BaseLayers, ForkRequest, MAX_SNAPSHOT_LAYERS, SnapshotQuery, SnapshotRequest, base_layers, fork_request,
    snapshot_query, snapshot_request,
};
pub use templates::build_polls::BuildPolls;
pub use templates::readiness::{AfterFailedCheck, FailedChecks, missing_program};
pub use templates::{
    DockerfileSource, StartRequest, TemplateQuery, TemplateRequest, template_name, template_query,
    template_request,
};
pub use text::field_names::{misplaced, mistyped, nearest_name, respelled};
pub use text::quoted::{alternatives, escaped, printable, quoted};
pub use text::request_id::{generated_request_id, well_formed_request_id};
pub use text::{cut_before, lossy};
pub use time::TimeMs;
