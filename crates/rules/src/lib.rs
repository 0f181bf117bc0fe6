//! Every decision of the service as a pure function: state transitions, validation, admission, quotas, limits, deadlines.
//!
//! No I/O, clock, logging or randomness. Time is passed as [`TimeMs`]. The crates above (engine, server) act on the decisions; a
//! refusal is a typed value, not a failure.

mod accounting;
mod admission;
mod base32;
mod build_polls;
mod capacity_warning;
mod code;
mod config;
mod config_error;
mod cost;
mod deadlines;
mod detached;
mod egress;
mod environment;
mod events;
mod execution;
mod executions;
mod expiry_notice;
mod field_names;
mod idempotency;
mod image_eviction;
mod image_pattern;
mod image_policy;
mod image_reference;
mod images;
mod interruptions;
mod isolation;
mod keys;
mod lifecycle;
mod lines;
mod listing;
mod outcome;
mod output;
mod output_readers;
mod ports;
mod position;
mod pressure;
mod pulled_bytes;
mod quotas;
mod quoted;
mod rates;
mod reached_limit;
mod readiness;
mod request_id;
mod samples;
mod signals;
mod snapshots;
mod templates;
mod text;
mod time;
mod turns;

pub use accounting::{Accounting, Phase};
pub use admission::{
    Capacity, Exhausted, Hold, Host, Next, Overcommit, Resource, Slot, SlotKind, Slots, TooManyExecutions,
    Usage,
};
pub use build_polls::BuildPolls;
pub use capacity_warning::CapacityWarning;
pub use code::{code_context, code_request, is_context_id};
pub use config::{ConfigRules, Integer, NetworkChange, Range, network_change, new_timeout, sandbox_config};
pub use config_error::ConfigError;
pub use cost::Prices;
pub use deadlines::{Activity, AutoPause, Deadline, Due, Expiry, Watch, next_deadline};
pub use detached::{DetachedCommand, detached_command, is_terminal_size, terminal_command};
pub use egress::{
    AddressOwner, AddressVerdict, Closed, EgressRules, Networks, RESOLVER_PORTS, Ranges, UDP_PORTS_CLOSED,
    WEB_PORTS, network_text, parse_network, plain_name,
};
pub use environment::environment;
pub use events::{BadRunHeader, EventQuery, SHOWN_COMMAND_BYTES, event_query, run_header, shown_command};
pub use execution::{ExecuteRefusal, ExecuteRules, execute_request};
pub use executions::executions_to_drop;
pub use expiry_notice::{expiry_notice, expiry_warning};
pub use field_names::{misplaced, mistyped, nearest_name, respelled};
pub use idempotency::{
    BadIdempotencyKey, IDEMPOTENCY_VALID_MS, Repeat, StoredRequest, idempotency_key, repeat, should_record,
};
pub use image_eviction::{ImageRetention, StoredImage, images_to_remove, stored_bytes};
pub use image_pattern::{BadImagePattern, ImagePattern};
pub use image_policy::{AddedPattern, AllowedVersions, ImagePolicy, ImageRefusal};
pub use image_reference::{ImageReference, ImageVersion, is_same_image};
pub use images::{ImageListing, ImageOwner, image_is_listed};
pub use interruptions::{GaveUp, MAX_INTERRUPTIONS, RepeatableWork, begin_work, suspects_last};
pub use isolation::{IsolationLevels, IsolationPolicy, IsolationRules};
pub use keys::{BadKey, BadLifetime, BadScopes, KeyLifetime, KeyText, Scope, Scopes, is_key_listed, key_end};
pub use lifecycle::{AutoResume, Operation, Refusal, Step, decide};
pub use lines::{LineEnd, LineSplitter, MAX_PIECE_BYTES};
pub use listing::{ListQuery, QueryError, list_query};
pub use outcome::{Cause, Command, Ended, NeverStarted, OutOfMemory, Outcome, ended_outcome, outcome};
pub use output::{CappedOutput, Captured, OUTPUT_BLOCK_BYTES};
pub use output_readers::{NeededOutput, OutputReaders, ReaderId};
pub use ports::{
    ExposeRequest, HostOf, MAX_PORTS, PortRefusal, ReservedName, SignedToken, expose_request, may_expose,
    port_label, token_lifetime_ms,
};
pub use position::{BadOutputPosition, OutputPosition};
pub use pressure::{
    FreeTrend, Pressure, Shortage, UseByOthers, Watermarks, disk_reserve_mb, free_after_writeback,
    memory_reserve_mb, promisable_disk_mb,
};
pub use pulled_bytes::{PullQuotaReached, PulledBytes};
pub use quotas::{AccountUsage, OwnQuotas, Quota, QuotaExceeded, QuotaTable, Quotas, StoredQuotas};
pub use quoted::{alternatives, escaped, printable, quoted};
pub use rates::{
    BadKeyLimits, Charge, KeyCharge, KeyLimits, KeyWindows, Limit, NO_LIMIT, PER_MINUTE_MAX, RateRefusal,
    RateSource, RateTable, Rates, SandboxCharge, SandboxWindows, Standing, Window, try_count_all,
    wall_seconds,
};
pub use reached_limit::ReachedLimit;
pub use readiness::{AfterFailedCheck, FailedChecks, missing_program};
pub use request_id::{generated_request_id, well_formed_request_id};
pub use samples::{SampleQuery, sample_query};
pub use signals::signal_name;
pub use snapshots::{
    BaseLayers, ForkRequest, MAX_SNAPSHOT_LAYERS, SnapshotQuery, SnapshotRequest, base_layers, fork_request,
    snapshot_query, snapshot_request,
};
pub use templates::{
    DockerfileSource, StartRequest, TemplateQuery, TemplateRequest, template_name, template_query,
    template_request,
};
pub use text::{cut_before, lossy};
pub use time::TimeMs;
pub use turns::Turns;
