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

#ifdef __cplusplus
}
#endif

#endif
