//! Keys: typed constants with the metadata of one setting.
//!
//! [`Settings::get`](crate::Settings::get) takes a key and returns its type, so a setting cannot be read without a
//! declaration. `keys!` lists every constant in the catalogue, so every declared key is accepted in a file.

use std::fmt;
use std::time::Duration;

use petasos_core::{Platform, Secret, text};
use serde_json::Value;

const DAY: u64 = 24 * 3600;

/// Syntax of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Flag,
    /// An integer in this range.
    Count(i64, i64),
    /// Like `Count`, or `none` for no limit.
    Limit(i64, i64),
    /// A non-negative number.
    Number,
    /// Seconds; a negative number counts as 0.
    Wait,
    Text,
    /// A text that is never printed.
    Secret,
    Choice(&'static [&'static str]),
    /// A list of texts, or one text with commas.
    List,
    /// A structure that the reader of the key parses.
    Table,
}

/// Value of an unset setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Default {
    None,
    Flag(bool),
    Whole(i64),
    Number(f64),
    Text(&'static str),
    List(&'static [&'static str]),
}

impl Default {
    pub(crate) fn value(self) -> Option<Value> {
        match self {
            Self::None => None,
            Self::Flag(it) => Some(it.into()),
            Self::Whole(it) => Some(it.into()),
            Self::Number(it) => Some(it.into()),
            Self::Text(it) => Some(it.into()),
            Self::List(items) => Some(items.into()),
        }
    }

    pub(crate) fn shown(self) -> Option<String> {
        match self {
            Self::None | Self::List([]) => None,
            Self::Flag(it) => Some(it.to_string()),
            Self::Whole(it) => Some(it.to_string()),
            Self::Number(it) => Some(it.to_string()),
            Self::Text(it) => Some(it.to_owned()),
            Self::List(items) => Some(items.join(",")),
        }
    }
}

/// How the program treats a setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Effect {
    Read,
    /// Accepted from existing files but not implemented. It restricts nothing, so a warning is enough.
    Ignored,
    /// Not implemented (on all platforms) although it restricts something: what it might restrict is denied.
    FailsClosed(Closed),
}

/// How an unimplemented restriction fails closed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Closed {
    /// The denied permission, as a clause for a message.
    pub denies: &'static str,
    /// A YAML value that restricts something; tests set it and expect fewer permissions.
    pub sample: &'static str,
}

/// When a changed value takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// Read on each use.
    Live,
    /// Read at process start.
    Restart,
}

impl Reload {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Restart => "restart",
        }
    }
}

/// Metadata of a key, without its type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Declared {
    /// `*` stands for a platform name.
    pub path: &'static str,
    /// Value of `*`; `None` in a key for any platform.
    pub platform: Option<&'static str>,
    pub kind: Kind,
    pub default: Default,
    pub help: &'static str,
    /// Environment variables, by precedence. `{P}` is the upper-case platform name.
    pub env: &'static [&'static str],
    /// Alternative paths.
    pub also: &'static [&'static str],
    /// The file takes precedence over the environment, instead of the reverse.
    pub file_first: bool,
    /// An invalid value is replaced by the default, with a warning.
    pub forgiving: bool,
    /// An empty text is a value; otherwise it counts as unset.
    pub verbatim: bool,
    pub effect: Effect,
    pub reload: Reload,
}

impl Declared {
    pub(crate) fn path(&self) -> String {
        self.expand_platform(self.path)
    }

    pub(crate) fn expand_platform(&self, pattern: &str) -> String {
        match self.platform {
            Some(platform) => pattern.replace('*', platform),
            None => pattern.to_owned(),
        }
    }
}

pub struct Key<T: 'static> {
    pub(crate) declared: Declared,
    read: fn(Option<&Value>) -> T,
}

/// A setting of type `T` for any platform.
pub struct PlatformKey<T: 'static>(pub(crate) Key<T>);

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.declared.path())
    }
}

/// Prints the path, as used in messages.
impl<T> fmt::Display for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.declared.path())
    }
}

impl<T> Clone for PlatformKey<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for PlatformKey<T> {}

impl<T> fmt::Debug for PlatformKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.declared.path)
    }
}

impl<T> Key<T> {
    const fn new(
        path: &'static str,
        kind: Kind,
        default: Default,
        help: &'static str,
        read: fn(Option<&Value>) -> T,
    ) -> Self {
        let declared = Declared {
            path,
            platform: None,
            kind,
            default,
            help,
            env: &[],
            also: &[],
            file_first: false,
            forgiving: false,
            verbatim: false,
            effect: Effect::Read,
            reload: Reload::Restart,
        };
        Self { declared, read }
    }

    const fn with(self, declared: Declared) -> Self {
        Self { declared, ..self }
    }

    pub(crate) const fn env(self, env: &'static [&'static str]) -> Self {
        self.with(Declared { env, ..self.declared })
    }

    pub(crate) const fn also(self, also: &'static [&'static str]) -> Self {
        self.with(Declared { also, ..self.declared })
    }

    pub(crate) const fn help(self, help: &'static str) -> Self {
        self.with(Declared { help, ..self.declared })
    }

    pub(crate) const fn file_first(self) -> Self {
        self.with(Declared { file_first: true, ..self.declared })
    }

    pub(crate) const fn forgiving(self) -> Self {
        self.with(Declared { forgiving: true, ..self.declared })
    }

    pub(crate) const fn verbatim(self) -> Self {
        self.with(Declared { verbatim: true, ..self.declared })
    }

    pub(crate) const fn live(self) -> Self {
        self.with(Declared { reload: Reload::Live, ..self.declared })
    }

    /// Not implemented; only a feature is missing.
    pub(crate) const fn ignored(self) -> Self {
        self.with(Declared { effect: Effect::Ignored, ..self.declared })
    }

    /// Not implemented; what it may restrict is denied.
    pub(crate) const fn closed(self, denies: &'static str, sample: &'static str) -> Self {
        self.with(Declared { effect: Effect::FailsClosed(Closed { denies, sample }), ..self.declared })
    }

    /// Converts to a key for any platform.
    pub(crate) const fn per_platform(self) -> PlatformKey<T> {
        PlatformKey(self)
    }

    pub(crate) fn read(&self, set: Option<&Value>) -> T {
        let counts = |value: &&Value| self.declared.verbatim || value.as_str() != Some("");
        match set.filter(counts) {
            Some(value) => (self.read)(Some(value)),
            None => (self.read)(self.declared.default.value().as_ref()),
        }
    }
}

impl<T> PlatformKey<T> {
    pub fn path(&self, platform: Platform) -> String {
        self.0.declared.path.replace('*', platform.as_str())
    }

    /// The key of one platform, whose adapter must read it.
    pub(crate) const fn on(self, platform: &'static str) -> Key<T> {
        let Self(key) = self;
        key.with(Declared { platform: Some(platform), effect: Effect::Read, ..key.declared })
    }
}

impl Key<bool> {
    pub(crate) const fn or(self, default: bool) -> Self {
        self.with(Declared { default: Default::Flag(default), ..self.declared })
    }
}

/// A type that checked values convert to.
pub trait Typed: Sized {
    fn of(value: &Value) -> Option<Self>;
}

/// A closed set of words.
pub trait Choice: Typed + std::default::Default {
    const WORDS: &'static [&'static str];
}

/// An unsigned integer type.
pub trait Whole: Typed + std::default::Default {
    const MAX_VALUE: u64;
}

macro_rules! whole {
    ($($type:ty),*) => {$(
        impl Typed for $type {
            fn of(value: &Value) -> Option<Self> {
                value.as_u64().map(|it| Self::try_from(it).unwrap_or(Self::MAX))
            }
        }

        impl Whole for $type {
            const MAX_VALUE: u64 = Self::MAX as u64;
        }
    )*};
}

whole!(u8, u16, u32, u64, usize);

impl Typed for bool {
    fn of(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl Typed for f64 {
    fn of(value: &Value) -> Option<Self> {
        value.as_f64()
    }
}

/// An empty text counts as unset.
impl Typed for String {
    fn of(value: &Value) -> Option<Self> {
        value.as_str().filter(|it| !it.is_empty()).map(str::to_owned)
    }
}

impl Typed for Secret {
    fn of(value: &Value) -> Option<Self> {
        String::of(value).map(Self::new)
    }
}

impl Typed for Vec<String> {
    fn of(value: &Value) -> Option<Self> {
        Some(value.as_array()?.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect())
    }
}

impl Typed for Value {
    fn of(value: &Value) -> Option<Self> {
        (!value.is_null()).then(|| value.clone())
    }
}

fn one<T: Typed + std::default::Default>(value: Option<&Value>) -> T {
    value.and_then(T::of).unwrap_or_default()
}

fn some<T: Typed>(value: Option<&Value>) -> Option<T> {
    value.and_then(T::of)
}

/// Non-negative seconds; an overflow counts as forever.
fn span(value: Option<&Value>) -> Duration {
    let seconds = value.and_then(Value::as_f64).unwrap_or_default();
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn span_or_never(value: Option<&Value>) -> Option<Duration> {
    Some(span(value)).filter(|it| !it.is_zero() && *it < Duration::MAX)
}

fn span_of<const UNIT: u64>(value: Option<&Value>) -> Duration {
    Duration::from_secs(one::<u64>(value).saturating_mul(UNIT))
}

fn span_of_or_never<const UNIT: u64>(value: Option<&Value>) -> Option<Duration> {
    Some(span_of::<UNIT>(value)).filter(|it| !it.is_zero())
}

pub(crate) const fn flag(path: &'static str, default: bool, help: &'static str) -> Key<bool> {
    Key::new(path, Kind::Flag, Default::Flag(default), help, one)
}

/// Unset differs from `false`.
pub(crate) const fn maybe(path: &'static str, help: &'static str) -> Key<Option<bool>> {
    Key::new(path, Kind::Flag, Default::None, help, some)
}

const fn range<T: Whole>(least: i64, most: i64) -> Kind {
    assert!(least >= 0 && least <= most, "bounds in their order");
    assert!(
        most as u64 <= T::MAX_VALUE || most == i64::MAX,
        "the type must hold every value within the bounds"
    );
    Kind::Count(least, most)
}

const fn within(least: i64, most: i64, default: i64) -> Default {
    assert!(least <= default && default <= most, "the default must lie within the bounds");
    Default::Whole(default)
}

pub(crate) const fn count<T: Whole>(
    path: &'static str,
    least: i64,
    most: i64,
    default: i64,
    help: &'static str,
) -> Key<T> {
    Key::new(path, range::<T>(least, most), within(least, most, default), help, one)
}

pub(crate) const fn maybe_count<T: Whole>(
    path: &'static str,
    least: i64,
    most: i64,
    help: &'static str,
) -> Key<Option<T>> {
    Key::new(path, range::<T>(least, most), Default::None, help, some)
}

/// `None`: no limit, written as `none`.
pub(crate) const fn limit(
    path: &'static str,
    least: i64,
    most: i64,
    default: i64,
    help: &'static str,
) -> Key<Option<u32>> {
    let Kind::Count(least, most) = range::<u32>(least, most) else { panic!("a range is a count") };
    Key::new(path, Kind::Limit(least, most), within(least, most, default), help, some)
}

const fn not_negative(default: f64) -> Default {
    assert!(default >= 0.0 && default.is_finite(), "the default must not be negative");
    Default::Number(default)
}

pub(crate) const fn maybe_number(path: &'static str, help: &'static str) -> Key<Option<f64>> {
    Key::new(path, Kind::Number, Default::None, help, some)
}

pub(crate) const fn number(path: &'static str, default: f64, help: &'static str) -> Key<f64> {
    Key::new(path, Kind::Number, not_negative(default), help, one)
}

pub(crate) const fn seconds(path: &'static str, default: f64, help: &'static str) -> Key<Duration> {
    Key::new(path, Kind::Number, not_negative(default), help, span)
}

/// 0 means never.
pub(crate) const fn seconds_or_never(
    path: &'static str,
    default: f64,
    help: &'static str,
) -> Key<Option<Duration>> {
    Key::new(path, Kind::Number, not_negative(default), help, span_or_never)
}

/// A negative number counts as 0.
pub(crate) const fn wait(path: &'static str, default: f64, help: &'static str) -> Key<Duration> {
    Key::new(path, Kind::Wait, not_negative(default), help, span)
}

pub(crate) const fn whole_seconds(
    path: &'static str,
    least: i64,
    most: i64,
    default: i64,
    help: &'static str,
) -> Key<Duration> {
    Key::new(path, range::<u64>(least, most), within(least, most, default), help, span_of::<1>)
}

/// 0 means never.
pub(crate) const fn hours_or_never(
    path: &'static str,
    most: i64,
    default: i64,
    help: &'static str,
) -> Key<Option<Duration>> {
    Key::new(path, range::<u64>(0, most), within(0, most, default), help, span_of_or_never::<3600>)
}

pub(crate) const fn days(path: &'static str, least: i64, default: i64, help: &'static str) -> Key<Duration> {
    Key::new(path, range::<u64>(least, 36_500), within(least, 36_500, default), help, span_of::<DAY>)
}

/// 0 means never.
pub(crate) const fn days_or_never(
    path: &'static str,
    default: i64,
    help: &'static str,
) -> Key<Option<Duration>> {
    Key::new(path, range::<u64>(0, 36_500), within(0, 36_500, default), help, span_of_or_never::<DAY>)
}

pub(crate) const fn text(path: &'static str, help: &'static str) -> Key<Option<String>> {
    Key::new(path, Kind::Text, Default::None, help, some)
}

pub(crate) const fn text_or(path: &'static str, default: &'static str, help: &'static str) -> Key<String> {
    Key::new(path, Kind::Text, Default::Text(default), help, one)
}

pub(crate) const fn secret(path: &'static str, help: &'static str) -> Key<Option<Secret>> {
    Key::new(path, Kind::Secret, Default::None, help, some)
}

pub(crate) const fn list(path: &'static str, help: &'static str) -> Key<Vec<String>> {
    list_or(path, &[], help)
}

pub(crate) const fn list_or(
    path: &'static str,
    default: &'static [&'static str],
    help: &'static str,
) -> Key<Vec<String>> {
    Key::new(path, Kind::List, Default::List(default), help, one)
}

/// Unset differs from empty.
pub(crate) const fn maybe_list(path: &'static str, help: &'static str) -> Key<Option<Vec<String>>> {
    Key::new(path, Kind::List, Default::None, help, some)
}

pub(crate) const fn table(path: &'static str, help: &'static str) -> Key<Option<Value>> {
    Key::new(path, Kind::Table, Default::None, help, some)
}

pub(crate) const fn choice<T: Choice>(
    path: &'static str,
    default: &'static str,
    help: &'static str,
) -> Key<T> {
    assert!(is_word(T::WORDS, default), "the default must be one of the words");
    Key::new(path, Kind::Choice(T::WORDS), Default::Text(default), help, one)
}

pub(crate) const fn maybe_choice<T: Choice>(path: &'static str, help: &'static str) -> Key<Option<T>> {
    Key::new(path, Kind::Choice(T::WORDS), Default::None, help, some)
}

const fn is_word(words: &[&str], word: &str) -> bool {
    let mut at = 0;
    while at < words.len() {
        if text::equal(words[at], word) {
            return true;
        }
        at += 1;
    }
    false
}

/// Declares keys and lists them. The list does not use the constants, so that the compiler reports dead ones; the test
/// `every_declared_key_is_read` finds the others.
macro_rules! keys {
    ($($(#[$meta:meta])* $name:ident: $type:ty = $key:expr;)*) => {
        $($(#[$meta])* pub const $name: $crate::key::Key<$type> = $key;)*

        pub(super) const DECLARED: &[(&str, $crate::key::Declared)] =
            &[$((stringify!($name), $key.declared)),*];
    };
}

/// Like `keys!`, for settings of any platform.
macro_rules! platform_keys {
    ($($(#[$meta:meta])* $name:ident: $type:ty = $key:expr;)*) => {
        $($(#[$meta])* pub const $name: $crate::key::PlatformKey<$type> = $key.per_platform();)*

        pub(super) const DECLARED: &[(&str, $crate::key::Declared)] =
            &[$((stringify!($name), $key.declared)),*];
    };
}

/// A closed set of words, one per variant; the first is the default.
macro_rules! choices {
    ($($(#[$meta:meta])* $name:ident { $($variant:ident = $word:literal),* $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($variant),*
        }

        impl $crate::key::Typed for $name {
            fn of(value: &serde_json::Value) -> Option<Self> {
                match value.as_str()? {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl $crate::key::Choice for $name {
            const WORDS: &'static [&'static str] = &[$($word),*];
        }

        impl std::default::Default for $name {
            fn default() -> Self {
                [$(Self::$variant),*][0]
            }
        }
    )*};
}

pub(crate) use {choices, keys, platform_keys};
