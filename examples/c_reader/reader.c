/* Prints so many messages of a topic, whoever sends them: reader TOPIC COUNT. */
#include <ringmain/ringmain.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(void) {
    fprintf(stderr, "reader: %s\n", ringmain_last_error());
    return 1;
}

int main(int count, char** words) {
    if (count != 3) return 2;
    ringmain_subscriber_options options = {.size = sizeof options};
    options.start = RINGMAIN_OLDEST;
    options.name = "c_reader";
    ringmain_subscriber* subscriber;
    if (ringmain_subscriber_open(words[1], &options, &subscriber) != RINGMAIN_OK) return failed();
    for (long left = atol(words[2]); left > 0;) {
        ringmain_message message;
        ringmain_status status = ringmain_receive(subscriber, NULL, NULL, 0, &message);
        if (status != RINGMAIN_OK) return failed();
        printf("%llu %.*s: %.*s\n", (unsigned long long)message.sequence, message.sender_size, message.sender,
               (int)message.size, (const char*)message.data);
        --left;
    }
    printf("%llu lost\n", (unsigned long long)ringmain_lost(subscriber));
    ringmain_subscriber_close(subscriber);
    return 0;
}
