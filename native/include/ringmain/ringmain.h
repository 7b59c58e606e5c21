/* ringmain for C, and for all that calls C: Rust, Go, Zig, C#, ctypes. Topics in shared memory, the same that Python's
 * `ringmain` and `ringmain.hpp` open. This is all that libringmain.so exports; the C++ headers are written on it.
 *
 * Every function that can fail returns a ringmain_status. After any but RINGMAIN_OK and RINGMAIN_EMPTY,
 * ringmain_last_error() has one sentence, for the thread that called. Nothing here throws, aborts, or prints.
 *
 * A handle is used by one thread at a time. Only ringmain_stop_request() may be called by any thread, at any time.
 * After fork(), the child opens handles of its own: an inherited one gives RINGMAIN_CLOSED, and may be closed.
 *
 * Options are structs whose zeros are the defaults; the first member is the size that the caller was compiled with:
 *
 *     ringmain_publisher_options options = {.size = sizeof options};
 *     options.contract = RINGMAIN_RELIABLE;
 *
 * Texts are UTF-8. A text with a size need not end with NUL; with a null pointer it is absent.
 */
#ifndef RINGMAIN_RINGMAIN_H
#define RINGMAIN_RINGMAIN_H

#include <stddef.h>
#include <stdint.h>

#if defined(RINGMAIN_BUILDING)
#define RINGMAIN_API __attribute__((visibility("default")))
#else
#define RINGMAIN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ringmain_status {
    RINGMAIN_OK = 0,
    RINGMAIN_EMPTY = 1, /* no message is there, and the call does not wait; there is no sentence for it */
    RINGMAIN_TIMEOUT = 2,
    RINGMAIN_FULL = 3,    /* the time was up before there was room, or were enough readers */
    RINGMAIN_STOPPED = 4, /* the wait was ended from another thread */
    RINGMAIN_CLOSED = 5,
    RINGMAIN_TOO_LARGE =
        6, /* the message can never fit; receiving: it does not fit the buffer, and is still there */
    RINGMAIN_TAKEN_OVER = 7, /* another writer has the topic now; receiving: the slot was lost */
    RINGMAIN_NOT_FOUND = 8,  /* no such topic, or it was removed */
    RINGMAIN_BUSY = 9,       /* the topic has its one writer or reader, or is in use */
    RINGMAIN_MISMATCH = 10,  /* it exists with another contract, capacity or mode */
    RINGMAIN_SCHEMA_MISMATCH = 11,
    RINGMAIN_ROSTER_FULL = 12,
    RINGMAIN_NOT_ALLOWED = 13,
    RINGMAIN_CORRUPT = 14,
    RINGMAIN_INVALID_ARGUMENT = 15,
    RINGMAIN_IN_USE = 16, /* a reservation is open, or a message is borrowed */
    RINGMAIN_LAPPED = 17, /* a borrowed message was overwritten while it was in use; only on broadcast */
    RINGMAIN_SYSTEM = 18  /* the operating system refused; see ringmain_last_errno() */
} ringmain_status;

/* What happens when a reader is slow. The numbers are those in the topic's file. */
typedef enum ringmain_contract {
    RINGMAIN_AS_IT_IS = 0, /* of a topic that exists; otherwise broadcast */
    RINGMAIN_BROADCAST = 1,
    RINGMAIN_PIPE = 2,
    RINGMAIN_BUS = 3,
    RINGMAIN_RELIABLE = 4,
    RINGMAIN_WORK = 5
} ringmain_contract;

/* Of this library, such as "0.1.0". */
RINGMAIN_API const char* ringmain_version(void);
/* What the last call of this thread that failed says; valid until the next one fails. */
RINGMAIN_API const char* ringmain_last_error(void);
/* errno of a RINGMAIN_SYSTEM, and of others that have one; otherwise 0. */
RINGMAIN_API int ringmain_last_errno(void);
/* "broadcast"; null for a number that is no contract. */
RINGMAIN_API const char* ringmain_contract_name(ringmain_contract contract);

/* -------------------------------------------------------------------------------------------------- waiting */

/* Ends waits from another thread; not from a signal handler. Once requested it stays so. */
typedef struct ringmain_stop ringmain_stop;
RINGMAIN_API ringmain_stop* ringmain_stop_new(void); /* null: no memory */
RINGMAIN_API void ringmain_stop_request(ringmain_stop* stop);
RINGMAIN_API void ringmain_stop_free(ringmain_stop* stop); /* when no call uses it any more */

#define RINGMAIN_FOREVER (-1)

/* How long a call waits. A null pointer: without a limit. */
typedef struct ringmain_wait {
    int64_t timeout_ns;  /* 0: not at all; RINGMAIN_FOREVER */
    ringmain_stop* stop; /* or null */
} ringmain_wait;

/* -------------------------------------------------------------------------------------------------- sending */

typedef struct ringmain_publisher ringmain_publisher;

typedef struct ringmain_publisher_options {
    size_t size; /* sizeof(ringmain_publisher_options) */
    ringmain_contract contract;
    uint32_t mode;               /* permissions of the file, such as 0660; 0: as it is, or 0600 */
    uint64_t capacity;           /* bytes of the ring, rounded up to a power of two; 0: as it is, or 1 MiB */
    const char* sender;          /* written on every message */
    const char* name;            /* of this participant; null: the sender, or the program's name */
    const char* directory;       /* of the topics; null: RINGMAIN_DIR, or /dev/shm/ringmain-<uid> */
    uint32_t min_readers;        /* every send waits while fewer take part */
    uint32_t max_participants;   /* 0: as it is, or 128 */
    uint32_t keep_last_per_kind; /* of so many kinds; 0: as it is, or not */
    uint8_t persist;             /* the topic stays when its last participant leaves */
    uint8_t takeover;            /* replaces a writer that is alive */
    uint8_t spins;               /* 1: spin_ns counts; 0: adaptive */
    uint8_t reserved[5];
    int64_t spin_ns;           /* how long to spin before a sleep */
    const char* struct_name;   /* of a typed topic, with struct_layout: see ringmain/structs.hpp */
    const char* struct_layout; /* as docs/guide/cpp.md writes it: "{t:<f8@0}8" */
} ringmain_publisher_options;

RINGMAIN_API ringmain_status ringmain_publisher_open(const char* topic,
                                                     const ringmain_publisher_options* options,
                                                     ringmain_publisher** publisher);
/* Leaves the topic, and frees the handle; null is allowed. */
RINGMAIN_API void ringmain_publisher_close(ringmain_publisher* publisher);

/* Sends a message, waiting as the contract says. `sequence` may be null. */
RINGMAIN_API ringmain_status ringmain_send(ringmain_publisher* publisher, const void* data, size_t size,
                                           const char* kind, size_t kind_size, const ringmain_wait* wait,
                                           uint64_t* sequence);

/* A message to be written in place: one at a time. Until it is committed or discarded, other writers wait. */
RINGMAIN_API ringmain_status ringmain_reserve(ringmain_publisher* publisher, size_t size, const char* kind,
                                              size_t kind_size, const ringmain_wait* wait, void** data);
/* Sends its first `used` bytes. */
RINGMAIN_API ringmain_status ringmain_commit(ringmain_publisher* publisher, size_t used, uint64_t* sequence);
RINGMAIN_API void ringmain_discard(ringmain_publisher* publisher);

/* Waits until so many living readers take part; `readers` says how many there are, and may be null. */
RINGMAIN_API ringmain_status ringmain_wait_for_readers(ringmain_publisher* publisher, uint32_t count,
                                                       const ringmain_wait* wait, uint32_t* readers);
/* Have all readers caught up? */
RINGMAIN_API ringmain_status ringmain_all_read(ringmain_publisher* publisher, int* all_read);

/* ------------------------------------------------------------------------------------------------ receiving */

typedef struct ringmain_subscriber ringmain_subscriber;

typedef enum ringmain_start {
    RINGMAIN_NEXT = 0,   /* with the next message */
    RINGMAIN_OLDEST = 1, /* with the oldest that is still there */
    RINGMAIN_NEWEST = 2  /* with the newest; where the topic keeps the last of each kind, with those */
} ringmain_start;

typedef enum ringmain_observe {
    RINGMAIN_OBSERVE_NEVER = 0,
    RINGMAIN_OBSERVE_PIPES = 1, /* pipes and work, which would take messages from another reader */
    RINGMAIN_OBSERVE_ALWAYS = 2 /* no writer waits for it */
} ringmain_observe;

/* Which senders, or which kinds, are received. */
typedef struct ringmain_screen {
    const char* const* ignore; /* skip these */
    size_t ignore_count;
    const char* const* only; /* null: all others; otherwise receive no others */
    size_t only_count;
} ringmain_screen;

typedef struct ringmain_subscriber_options {
    size_t size; /* sizeof(ringmain_subscriber_options) */
    ringmain_start start;
    ringmain_start on_lap; /* RINGMAIN_NEXT or RINGMAIN_OLDEST, if on_lap_given; otherwise the oldest */
    ringmain_observe observe;
    uint8_t conflate; /* only the newest message; those skipped are not lost */
    uint8_t on_lap_given;
    uint8_t spins; /* 1: spin_ns counts; 0: adaptive */
    uint8_t reserved;
    int64_t spin_ns;
    const char* name;      /* of this participant; null: the program's */
    const char* directory; /* null: RINGMAIN_DIR, or /dev/shm/ringmain-<uid> */
    ringmain_screen senders, kinds;
    const char* struct_name;   /* what is received, for the error */
    const char* struct_layout; /* null: any bytes; otherwise a topic of another type is refused */
} ringmain_subscriber_options;

/* The topic need not exist yet. */
RINGMAIN_API ringmain_status ringmain_subscriber_open(const char* topic,
                                                      const ringmain_subscriber_options* options,
                                                      ringmain_subscriber** subscriber);
/* Leaves the topic, and frees the handle; null is allowed. What was borrowed is returned by it. */
RINGMAIN_API void ringmain_subscriber_close(ringmain_subscriber* subscriber);

typedef struct ringmain_message {
    const void* data;
    size_t size;
    uint64_t sequence; /* counts the topic's messages, from 0 */
    int64_t time_ns;   /* when it was sent, by the wall clock */
    uint64_t lost;     /* messages lost just before it */
    const char *sender, *kind;
    uint8_t sender_size, kind_size;
    uint8_t redelivered; /* on work: how often workers gave it back before */
    uint8_t reserved[5];
    uint64_t position; /* which borrowed message it is */
} ringmain_message;

/* Takes the next message: RINGMAIN_TIMEOUT if none comes in time, or RINGMAIN_EMPTY if the call does not wait. The buffer
 * gets the payload and, behind it, sender and kind; one that is too small gives RINGMAIN_TOO_LARGE and the sizes, and takes
 * nothing. With a null buffer the handle's own is used: what it holds is valid until the next call with this handle. On work,
 * the message is done when the handle receives again, or closes. */
RINGMAIN_API ringmain_status ringmain_receive(ringmain_subscriber* subscriber, const ringmain_wait* wait,
                                              void* buffer, size_t buffer_size, ringmain_message* message);

/* The same in place, without a copy, until it is returned. On broadcast the writer does not wait: see ringmain_return. */
RINGMAIN_API ringmain_status ringmain_borrow(ringmain_subscriber* subscriber, const ringmain_wait* wait,
                                             ringmain_message* message);
/* `failed`: on work, another worker shall have it. RINGMAIN_LAPPED: its bytes changed while it was in use. */
RINGMAIN_API ringmain_status ringmain_return(ringmain_subscriber* subscriber, const ringmain_message* message,
                                             int failed);
/* Of a message that was borrowed on broadcast: are its bytes still as they were sent? */
RINGMAIN_API int ringmain_still_whole(const ringmain_subscriber* subscriber, const ringmain_message* message);
/* On work: gives back the message that was received last, so that another worker has it. */
RINGMAIN_API ringmain_status ringmain_reject(ringmain_subscriber* subscriber);

/* Waits until one of these has a message, or a frame: `ready` gets 1 for each that has, otherwise 0. Nothing is taken. The
 * subscriber of a frame subscriber is ringmain_frame_subscriber_topic(). RINGMAIN_TIMEOUT; RINGMAIN_EMPTY if the call does not wait. On
 * work, another worker may be faster. */
RINGMAIN_API ringmain_status ringmain_wait_any(ringmain_subscriber* const* subscribers, size_t count,
                                               const ringmain_wait* wait, uint8_t* ready);

/* Messages lost since it was opened. */
RINGMAIN_API uint64_t ringmain_lost(const ringmain_subscriber* subscriber);

/* ----------------------------------------------------------------------------------------------- inspection */

/* Of the topic that a handle is in. Before a subscriber's topic exists, all is 0. */
typedef struct ringmain_endpoint {
    ringmain_contract contract;
    uint32_t reserved;
    uint64_t capacity;          /* bytes of the ring */
    uint64_t epoch;             /* which life of the topic: when it was created, in ns */
    uint64_t max_message_bytes; /* of a payload, without sender and kind; 0 of a subscriber */
    uint64_t next_sequence;
} ringmain_endpoint;

RINGMAIN_API ringmain_status ringmain_publisher_endpoint(const ringmain_publisher* publisher,
                                                         ringmain_endpoint* endpoint);
RINGMAIN_API ringmain_status ringmain_subscriber_endpoint(const ringmain_subscriber* subscriber,
                                                          ringmain_endpoint* endpoint);

typedef enum ringmain_role { RINGMAIN_WRITER = 1, RINGMAIN_READER = 2, RINGMAIN_OBSERVER = 3 } ringmain_role;

typedef struct ringmain_participant {
    ringmain_role role;
    uint32_t pid;
    uint32_t user;
    uint8_t alive;
    uint8_t same_namespace; /* is the pid one of this pid namespace? */
    uint8_t reserved[2];
    uint64_t messages, bytes; /* sent or received since it joined */
    uint64_t lost;
    uint64_t lag_messages, lag_bytes; /* how far a reader is behind */
    char name[80];
} ringmain_participant;

typedef struct ringmain_topic {
    char name[208];
    ringmain_contract contract;
    uint32_t max_participants;
    uint64_t capacity, epoch, next_sequence;
    uint8_t persist;
    uint8_t reserved[7];
    const char* schema; /* the topic's schema, as JSON; empty if it is not typed */
    size_t schema_size;
    const ringmain_participant* participants;
    size_t participant_count;
} ringmain_topic;

typedef struct ringmain_topic_list {
    const ringmain_topic* topics;
    size_t count;
} ringmain_topic_list;

/* One topic; `directory` may be null. */
RINGMAIN_API ringmain_status ringmain_info(const char* topic, const char* directory,
                                           ringmain_topic_list** found);
/* All topics that can be read, in the order of their names. */
RINGMAIN_API ringmain_status ringmain_topics(const char* directory, ringmain_topic_list** found);
RINGMAIN_API void ringmain_topics_free(ringmain_topic_list* list);
/* Removes a topic; unless forced, only one that has no living participants. */
RINGMAIN_API ringmain_status ringmain_unlink(const char* topic, const char* directory, int force);

/* -------------------------------------------------------------------------------------------------- frames */

#define RINGMAIN_MAX_DIMENSIONS 16
#define RINGMAIN_MAX_PLANES 4

/* A strided array within a frame. */
typedef struct ringmain_plane {
    char name[16];  /* "y", "uv"; empty: of the frame as a whole */
    char dtype[16]; /* as numpy writes it: "|u1", "<f4" */
    uint64_t offset;
    uint32_t dimensions;
    uint32_t reserved;
    uint64_t shape[RINGMAIN_MAX_DIMENSIONS];
    uint64_t strides[RINGMAIN_MAX_DIMENSIONS]; /* in bytes; in a layout that is given, all 0: without gaps */
} ringmain_plane;

/* How the bytes of a frame are arranged. */
typedef struct ringmain_layout {
    char format[16]; /* "array", "bytes", or the image's */
    uint64_t size;   /* bytes of a frame */
    uint32_t width, height;
    uint64_t stride; /* bytes from one row to the next */
    ringmain_plane array;
    uint32_t plane_count;
    uint32_t reserved;
    ringmain_plane planes[RINGMAIN_MAX_PLANES];
} ringmain_layout;

/* Bytes without a shape; a frame may use fewer of them. */
RINGMAIN_API ringmain_status ringmain_layout_of_bytes(uint64_t size, ringmain_layout* layout);
RINGMAIN_API ringmain_status ringmain_layout_of_array(const uint64_t* shape, size_t dimensions,
                                                      const char* dtype, ringmain_layout* layout);
/* "gray", "rgb", "bgr", "rgba", "bgra", "nv12", "nv21" or "i420"; `stride` 0: that of its width. Where a camera leaves gaps, set
 * the offsets of planes, and the size. */
RINGMAIN_API ringmain_status ringmain_layout_of_image(const char* format, uint32_t width, uint32_t height,
                                                      uint64_t stride, ringmain_layout* layout);

typedef struct ringmain_frame_publisher ringmain_frame_publisher;

typedef struct ringmain_frame_publisher_options {
    size_t size; /* sizeof(ringmain_frame_publisher_options) */
    const ringmain_layout* layout;
    uint32_t buffers;                /* how many frames can be held or unread at once, at most 60; 0: 4 */
    uint32_t mode, max_participants; /* as of a publisher, and what follows */
    uint8_t drops; /* where readers hold all buffers: no frame at once, and counted, instead of waiting */
    uint8_t huge_pages; /* ask for them */
    uint8_t takeover;
    uint8_t spins;
    int64_t spin_ns;
    const char *sender, *name, *directory;
} ringmain_frame_publisher_options;

RINGMAIN_API ringmain_status ringmain_frame_publisher_open(const char* topic,
                                                           const ringmain_frame_publisher_options* options,
                                                           ringmain_frame_publisher** publisher);
/* Frames that are being filled are discarded; null is allowed. */
RINGMAIN_API void ringmain_frame_publisher_close(ringmain_frame_publisher* publisher);
/* What sends the frames' descriptors: for ringmain_wait_for_readers, ringmain_all_read, ringmain_publisher_endpoint. It is closed with the
 * frame publisher. */
RINGMAIN_API ringmain_publisher* ringmain_frame_publisher_topic(ringmain_frame_publisher* publisher);
/* Frames that were not sent because no buffer was free. */
RINGMAIN_API uint64_t ringmain_frames_dropped(const ringmain_frame_publisher* publisher);

/* A frame that is being filled. */
typedef struct ringmain_draft {
    void* data;
    uint64_t size;            /* that of the layout; of bytes, it may be made smaller */
    uint64_t id;              /* counts the frames; set it as you like */
    int64_t start_ns, end_ns; /* when it began: now; when it ended: 0, when it is sent */
    const void* meta;         /* more about it, as a map in MessagePack; until it is committed */
    size_t meta_size;
    uint32_t buffer;
    uint8_t valid; /* is the content valid? 1 */
    uint8_t reserved[3];
} ringmain_draft;

/* The next free buffer. RINGMAIN_FULL: readers hold all of them. */
RINGMAIN_API ringmain_status ringmain_frame_begin(ringmain_frame_publisher* publisher,
                                                  const ringmain_wait* wait, ringmain_draft* draft);
/* Sends it. Whatever is returned, the draft has ended. */
RINGMAIN_API ringmain_status ringmain_frame_commit(ringmain_frame_publisher* publisher,
                                                   const ringmain_draft* draft, uint64_t* sequence);
RINGMAIN_API void ringmain_frame_discard(ringmain_frame_publisher* publisher, const ringmain_draft* draft);

typedef struct ringmain_frame_subscriber ringmain_frame_subscriber;

/* Options are those of a subscriber, without structs, and without observing: who looks at frames holds them. */
RINGMAIN_API ringmain_status ringmain_frame_subscriber_open(const char* topic,
                                                            const ringmain_subscriber_options* options,
                                                            ringmain_frame_subscriber** subscriber);
/* Frames that were received stay until they are released; null is allowed. */
RINGMAIN_API void ringmain_frame_subscriber_close(ringmain_frame_subscriber* subscriber);
/* What receives the frames' descriptors: for ringmain_lost and ringmain_subscriber_endpoint. It is closed with the frame subscriber. */
RINGMAIN_API ringmain_subscriber* ringmain_frame_subscriber_topic(ringmain_frame_subscriber* subscriber);

/* A frame in place, as it was sent, until it is released. */
typedef struct ringmain_frame {
    const void* data;
    uint64_t size;
    uint64_t id;
    int64_t start_ns, end_ns;
    uint64_t sequence; /* counts the topic's frames, from 0 */
    int64_t time_ns;   /* when it was sent, by the wall clock */
    uint64_t lost;     /* frames lost just before it */
    const void* meta;  /* MessagePack; none: the size is 0 */
    size_t meta_size;
    const char *sender, *kind;
    const ringmain_layout* layout;
    void* held;
    uint8_t sender_size, kind_size;
    uint8_t valid;
    uint8_t reserved[5];
} ringmain_frame;

RINGMAIN_API ringmain_status ringmain_frame_receive(ringmain_frame_subscriber* subscriber,
                                                    const ringmain_wait* wait, ringmain_frame* frame);
/* By the thread that uses the subscriber, while there is one. */
RINGMAIN_API void ringmain_frame_release(ringmain_frame* frame);

#ifdef __cplusplus
}
#endif

#endif
